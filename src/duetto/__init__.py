"""Duetto: deep reinforcement learning. Each algorithm is written once, and trains on PyTorch and on JAX."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duetto import callbacks as callbacks
    from duetto import trackers as trackers
    from duetto.algorithms import *  # noqa: F403 (all algorithms of the registry)
    from duetto.cluster import Cluster as Cluster
    from duetto.environments.check import Finding as Finding
    from duetto.environments.check import check as check
    from duetto.errors import DuettoError as DuettoError
    from duetto.errors import UsageError as UsageError
    from duetto.networks.specs import CustomNetwork as CustomNetwork
    from duetto.runs.agent import Agent as Agent
    from duetto.runs.agent import load as load
    from duetto.runs.api import train as train
    from duetto.runs.run import Run as Run
    from duetto.tools.export.writing import export as export
    from duetto.tools.hub.download import pull as pull
    from duetto.tools.hub.upload import push as push
    from duetto.tools.plot.curves import plot as plot
    from duetto.tools.plot.table import table as table
    from duetto.tools.report.report import report as report
    from duetto.tools.sweep.api import SweepResult as SweepResult
    from duetto.tools.sweep.api import sweep as sweep
    from duetto.tools.tune.api import TuneResult as TuneResult
    from duetto.tools.tune.api import tune as tune
    from duetto.training.callbacks import Callback as Callback
    from duetto.training.evaluation import Evaluation as Evaluation
    from duetto.training.trainer import Trainer as Trainer

# A name is imported at its first use, so that `import duetto` is fast and imports no framework.
_NAMES = {
    "cluster": "Cluster",
    "environments.check": "Finding check",
    "errors": "DuettoError UsageError",
    "networks.specs": "CustomNetwork",
    "runs.agent": "Agent load",
    "runs.api": "train",
    "runs.run": "Run",
    "tools.export.writing": "export",
    "tools.hub.download": "pull",
    "tools.hub.upload": "push",
    "tools.plot.curves": "plot",
    "tools.plot.table": "table",
    "tools.report.report": "report",
    "tools.sweep.api": "SweepResult sweep",
    "tools.tune.api": "TuneResult tune",
    "training.callbacks": "Callback",
    "training.evaluation": "Evaluation",
    "training.trainer": "Trainer",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__version__ = version("duetto")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name in ("callbacks", "trackers"):
        return import_module(f"duetto.{name}")
    if name in _HOMES:
        return getattr(import_module(f"duetto.{_HOMES[name]}"), name)
    if not name.startswith("_"):
        for kind in import_module("duetto.algorithms").ALGORITHMS.values():
            if kind.__name__ == name:
                return kind
    raise AttributeError(f"module 'duetto' has no attribute {name!r}")


def __dir__() -> list[str]:
    kinds = import_module("duetto.algorithms").ALGORITHMS.values()
    return ["__version__", *sorted([*_HOMES, *(kind.__name__ for kind in kinds)])]
