"""Duetto: deep reinforcement learning, each algorithm's mathematics written once, trained on PyTorch and on JAX."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duetto.algorithms import BC as BC
    from duetto.algorithms import DDPG as DDPG
    from duetto.algorithms import DQN as DQN
    from duetto.algorithms import PPO as PPO
    from duetto.algorithms import R2D2 as R2D2
    from duetto.algorithms import R2D3 as R2D3
    from duetto.algorithms import TD3 as TD3
    from duetto.algorithms import DQfD as DQfD
    from duetto.display.plotting import plot as plot
    from duetto.errors import DuettoError as DuettoError
    from duetto.errors import UsageError as UsageError
    from duetto.networks.specs import CustomNetwork as CustomNetwork
    from duetto.runs.agent import Agent as Agent
    from duetto.runs.api import load as load
    from duetto.runs.api import train as train
    from duetto.runs.run import Run as Run
    from duetto.training.evaluation import Evaluation as Evaluation
    from duetto.training.session import Session as Session

# Looked up when first used, so that `import duetto` costs next to nothing and imports no framework.
_HOMES = {
    "BC": "duetto.algorithms",
    "DDPG": "duetto.algorithms",
    "DQN": "duetto.algorithms",
    "DQfD": "duetto.algorithms",
    "PPO": "duetto.algorithms",
    "R2D2": "duetto.algorithms",
    "R2D3": "duetto.algorithms",
    "TD3": "duetto.algorithms",
    "DuettoError": "duetto.errors",
    "UsageError": "duetto.errors",
    "CustomNetwork": "duetto.networks.specs",
    "Agent": "duetto.runs.agent",
    "Evaluation": "duetto.training.evaluation",
    "Run": "duetto.runs.run",
    "Session": "duetto.training.session",
    "load": "duetto.runs.api",
    "plot": "duetto.display.plotting",
    "train": "duetto.runs.api",
}

__version__ = version("duetto")
__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'duetto' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
