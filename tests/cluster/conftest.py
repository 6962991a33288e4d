import sys
from pathlib import Path

import pytest

from duetto.cluster import config, modes

sys.path.append(str(Path(__file__).parent.parent / "training"))  # small runs and their comparison


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch):
    """Pretend that Ray is installed, and look for new blocks at every step, whatever the clock says."""
    monkeypatch.setattr(config, "find_spec", lambda name: name)
    monkeypatch.setattr(modes, "LOOK", 0.0)
