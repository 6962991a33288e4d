"""Duetto: deep reinforcement learning, each algorithm's mathematics written once, trained on PyTorch and on JAX."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duetto import callbacks as callbacks
    from duetto import trackers as trackers
    from duetto.algorithms import *  # noqa: F403 (every algorithm, as the registry has them)
    from duetto.cluster import Cluster as Cluster
    from duetto.environments.check import Finding as Finding
    from duetto.environments.check import check as check
    from duetto.errors import DuettoError as DuettoError
    from duetto.errors import UsageError as UsageError
    from duetto.networks.specs import CustomNetwork as CustomNetwork
    from duetto.runs.agent import Agent as Agent
    from duetto.runs.api import load as load
    from duetto.runs.api import train as train
    from duetto.runs.run import Run as Run
    from duetto.tools.export.writing import export as export
    from duetto.tools.hub.download import pull as pull
    from duetto.tools.hub.upload import push as push
    from duetto.tools.plot.figure import plot as plot
    from duetto.tools.plot.table import table as table
    from duetto.tools.report.report import report as report
    from duetto.tools.sweep.api import sweep as sweep
    from duetto.tools.sweep.results import SweepResult as SweepResult
    from duetto.tools.tune.api import TuneResult as TuneResult
    from duetto.tools.tune.api import tune as tune
    from duetto.training.callbacks import Callback as Callback
    from duetto.training.evaluation import Evaluation as Evaluation
    from duetto.training.trainer import Trainer as Trainer

# Looked up when first used, so that `import duetto` costs next to nothing and imports no framework.
_HOMES = {
    "Callback": "duetto.training.callbacks",
    "Cluster": "duetto.cluster",
    "DuettoError": "duetto.errors",
    "UsageError": "duetto.errors",
    "CustomNetwork": "duetto.networks.specs",
    "Agent": "duetto.runs.agent",
    "Evaluation": "duetto.training.evaluation",
    "Finding": "duetto.environments.check",
    "Run": "duetto.runs.run",
    "Trainer": "duetto.training.trainer",
    "check": "duetto.environments.check",
    "export": "duetto.tools.export.writing",
    "load": "duetto.runs.api",
    "plot": "duetto.tools.plot.figure",
    "pull": "duetto.tools.hub.download",
    "push": "duetto.tools.hub.upload",
    "report": "duetto.tools.report.report",
    "SweepResult": "duetto.tools.sweep.results",
    "sweep": "duetto.tools.sweep.api",
    "table": "duetto.tools.plot.table",
    "train": "duetto.runs.api",
    "TuneResult": "duetto.tools.tune.api",
    "tune": "duetto.tools.tune.api",
}

_ROOMS = ("callbacks", "trackers")

__version__ = version("duetto")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name in _ROOMS:
        return import_module(f"duetto.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_"):
        for kind in import_module("duetto.algorithms").ALGORITHMS.values():
            if kind.__name__ == name:
                return kind
    raise AttributeError(f"module 'duetto' has no attribute {name!r}")


def __dir__() -> list[str]:
    kinds = import_module("duetto.algorithms").ALGORITHMS.values()
    return ["__version__", *sorted([*_HOMES, *(kind.__name__ for kind in kinds)])]
