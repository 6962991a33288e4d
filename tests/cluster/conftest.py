import pytest

from duetto.cluster import config, modes


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch):
    """Pretend that Ray is installed, and look for new blocks at every step, whatever the clock says."""
    monkeypatch.setattr(config, "find_spec", lambda name: name)
    monkeypatch.setattr(modes, "LOOK", 0.0)
