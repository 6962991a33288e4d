import sys
from pathlib import Path

import pytest

from duetto.cluster import config, modes

sys.path.append(str(Path(__file__).parent.parent / "training"))  # runs of a few hundred steps, and what is equal in two


@pytest.fixture(autouse=True)
def simulation(monkeypatch: pytest.MonkeyPatch):
    """Without Ray, and without a clock: on a slow machine nothing is asked for more often."""
    monkeypatch.setattr(config, "find_spec", lambda name: name)
    monkeypatch.setattr(modes, "LOOK", 0.0)
