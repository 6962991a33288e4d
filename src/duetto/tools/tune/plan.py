"""The plan of a study: options and settings. Its folder records it and refuses another plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.runs.config_changes import changed_since
from duetto.runs.spec import RunSpec
from duetto.storage import atomic_io
from duetto.storage.config import Config
from duetto.storage.dict_diff import flat
from duetto.storage.safe_yaml import to_yaml
from duetto.storage.user_code import algorithm_source
from duetto.tools.tune.space import Space

FORMAT = 1
MAX_WINDOW = 3  # evaluations in a seed's score
_ENVIRONMENT = ("id", "options", "sha256")


@dataclass(frozen=True)
class Plan:
    """The plan of a study."""

    spec: RunSpec  # of the center; its seed is that of the search
    config: Config  # of the spec
    space: Space
    seeds: tuple[int, ...]
    prune: bool
    cwd: Path = Path()  # before environments were made, which may change it

    @property
    def center(self) -> Algorithm:
        """The algorithm, with the options that the search is around."""
        return self.config.algorithm

    @property
    def window(self) -> int:
        """The number of evaluations in a seed's score: those of the last quarter of its steps, at most three.

        One evaluation is of one policy, which may be better than those before and after it by chance.
        """
        return min(max(1, self.config.run.steps // self.config.run.evaluate_every // 4), MAX_WINDOW)

    @property
    def prune_from(self) -> int | None:
        """The first step at which a trial may be pruned: a fifth of all, or the first update's; None: never."""
        steps, algorithm = self.config.run.steps, self.center
        first, _ = algorithm.memory().first_update(self.config.run.num_envs)
        return max(steps // 5, first, algorithm.first_random_steps()) if self.prune else None

    @property
    def fresh_seed(self) -> int:
        """The first seed that gives evaluations and environments other initial states than the study's."""
        run = self.config.run  # the seeds of a run's episodes and environments are counted from its own
        return max(self.seeds) + max(run.evaluation_episodes, run.num_envs)

    def record(self, folder: Path) -> None:
        """Write the plan to `study.yaml` in a new folder; in an existing one, check that it is the same.

        Raises:
            UsageError: The folder is of another study, or contains something else.
            OSError: The folder cannot be written.
        """
        path = folder / "study.yaml"
        if not path.exists():
            if folder.exists() and any(not child.name.startswith(".") for child in folder.iterdir()):
                raise UsageError(f"{folder} exists and is no study: it has no study.yaml. Choose another --output.")
            folder.mkdir(parents=True, exist_ok=True)
            atomic_io.publish_file(path, to_yaml(self.to_dict()).encode())
            return
        if changed := changed_since(path, self.to_dict(), flat):
            raise UsageError(
                f"{folder} is of another study: {changed}. Give the same options to continue it (only "
                "--trials and --jobs may change), and restore edited files; or start a new one with --output."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return everything that decides the trials and their scores, as `study.yaml` has it."""
        config = self.config.to_dict()
        return {
            "search": {name: dimension.to_dict() for name, dimension in self.space.items()},
            "seeds": list(self.seeds),
            "prune": self.prune,
            "algorithm": config["algorithm"] | {"from": algorithm_source(config["algorithm"])},
            "environment": {key: value for key, value in config["environment"].items() if key in _ENVIRONMENT},
            "run": config["run"],
            "format": FORMAT,
        }
