"""After `kill -9`, environments continue exactly, or start a new episode with a warning."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from typing import Any

import hidden_environments as hidden
import pytest
from small_runs import AtStart, StopAt, small, train
from test_resume import check_exact_resume_after_kill

from duetto.runs.run import Run
from duetto.storage.config import Config
from duetto.training.trainer import Trainer


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # SWIG in Box2D
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize(
    ("environment", "needs", "vectorization"),
    [("LunarLanderContinuous-v3", "Box2D", "subprocess"), ("HopperBulletEnv-v0", "pybullet", "sync")],
)
def test_environment_resumes_exactly_after_kill(tmp_path: Path, environment: str, needs: str, vectorization: str):
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    options: dict[str, Any] = {"num_envs": 2, "vectorization": vectorization, "steps": 600, "evaluate_every": 0}
    check_exact_resume_after_kill(tmp_path, environment=environment, **options)


class Remembering(hidden.LegacyGeneratorState):
    """Adds the last digit of its first seed to its numbers in all episodes: only digit 0 can be replayed."""

    digit = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.digit = self.digit if seed is None else seed % 10
        return super().reset(seed=seed)

    def _number(self) -> float:
        return super()._number() + self.digit


def test_unrestorable_environment_starts_a_new_episode(tmp_path: Path):
    """Duetto warns, and records it in the history. The other environment continues its episode."""
    heard: list[str] = []
    starts: list[list[bool]] = []

    def look(trainer: Trainer) -> None:
        heard.extend(trainer.notices)
        starts.append(trainer.stepper.starts.tolist())

    options: dict[str, Any] = {"num_envs": 2, "steps": 200, "evaluate_every": 0}
    run = train(tmp_path, small(), Remembering, callbacks=[StopAt(120)], **options)  # 10 steps into the second episode
    Run(run.path, Remembering).resume(callbacks=[AtStart(look)])
    [notice] = heard
    assert notice.startswith("The state of 1 of the 2 environments Remembering could not be restored (its episode")
    assert "The run continues with new episodes, so from here its numbers differ" in notice
    assert starts == [[False, True]]
    [event] = Config.load(run.path / "config.yaml").history.inexact
    assert (event.step, event.what) == (120, notice)
