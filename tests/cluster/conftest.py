import math
import sys
from pathlib import Path

import pytest

from duetto.cluster import asynchronous
from duetto.cluster import evaluator as evaluator_actor
from duetto.training import evaluator

sys.path.append(str(Path(__file__).parent.parent / "training"))  # runs of a few hundred steps, and what is equal in two


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch):
    """Lets what is simulated depend on its seed alone: on a slow machine nothing is asked for more often."""
    monkeypatch.setattr(evaluator_actor, "PIECE", math.inf)
    monkeypatch.setattr(evaluator, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(asynchronous, "LOOK", 0.0)
