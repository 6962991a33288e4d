"""`RunSpec`: what it says of a run before anything is written."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

import duetto
from duetto.errors import UsageError
from duetto.runs.finetune import WarmStart
from duetto.runs.parallel_seeds import planned_together
from duetto.runs.run import start
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions

OPTIONS = RunOptions(steps=20, backend="torch", evaluate_every=0, seed=3)
SMALL = {"hidden": (8,), "batch_size": 4, "random_steps": 4, "learning_starts": 4, "replay_capacity": 20}


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return RunSpec(duetto.TD3(**SMALL), "Pendulum-v1", OPTIONS, environment_options={"g": 9.0}, runs_dir=tmp_path)


def test_it_plans_the_config_that_the_run_has(spec: RunSpec, tmp_path: Path):
    config = spec.config()
    assert (config.run.device, config.run.threads > 0) == ("cpu", True)  # "auto" and 0 before
    assert not list(tmp_path.iterdir())
    run = start(spec)
    assert run.path == tmp_path / "td3-Pendulum-v1-s3"
    assert run.config == config
    with pytest.raises(FrozenInstanceError):
        spec.name = "other"


def test_its_config_names_the_run_that_it_starts_from(spec: RunSpec, tmp_path: Path):
    with pytest.raises(UsageError, match="has no checkpoints"):
        replace(spec, warm_start=WarmStart(str(tmp_path / "none"))).config()
    first = start(spec)
    again = replace(spec, warm_start=WarmStart(str(first.path)), name="again")
    assert again.config().began_from == {**WarmStart(str(first.path)).to_dict(), "step": None}
    assert start(again).config.began_from == {**WarmStart(str(first.path)).to_dict(), "step": 20}


def test_seeds_have_the_configs_of_one_spec(spec: RunSpec):
    first, second = planned_together(spec, (7, 5))
    assert (first.run.seed, first.other_seeds, second.run.seed, second.other_seeds) == (7, (5,), 5, (7,))
    assert replace(first, run=second.run, other_seeds=second.other_seeds) == second
