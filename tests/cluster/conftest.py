import sys
from pathlib import Path

import pytest

from duetto.cluster import asynchronous

sys.path.append(str(Path(__file__).parent.parent / "training"))  # runs of a few hundred steps, and what is equal in two


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch):
    """Lets what is simulated depend on its seed alone: on a slow machine nothing is asked for more often."""
    monkeypatch.setattr(asynchronous, "LOOK", 0.0)
