"""Runs that learn from demonstrations: shares, pre-training, imitation, what is refused, what needs no folder."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstrated import CHOICES, CUT, SEQUENCES, episodes, expert, recorded
from fake_run import same
from rich.console import Console
from small_runs import checkpoints, small, train

import duetto
from duetto.errors import UsageError
from duetto.training import progress
from duetto.training.trainer import Trainer

OPTIONS: dict[str, Any] = {"environment": "CartPole-v1", "checkpoint_every": 0, "evaluate_every": 0} | CUT
PAPER = {"margin_weight": 0.0, "one_step_weight": 0.0, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("demonstrations") / "cartpole")


def parameters(run: duetto.Run) -> dict[str, Any]:
    return checkpoints(run).load_latest().state["learner"]["parameters"]


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_a_share_of_nothing_is_r2d2_bit_for_bit(tmp_path: Path, demos: str, backend: str):
    """A whole run, with the paper's losses: the same parameters, and the same returns while training."""
    options = SEQUENCES | CHOICES
    r2d2 = train(tmp_path, small("r2d2", **options), backend=backend, **OPTIONS)
    share = {"demonstrations": demos, "demonstration_share": 0.0}
    r2d3 = train(tmp_path, small("r2d3", **PAPER | share | options), backend=backend, **OPTIONS)
    assert same(parameters(r2d2), parameters(r2d3))
    ours, theirs = (run.metrics()[-1] for run in (r2d2, r2d3))
    assert theirs["learn/demonstrations"] == 0
    assert {name for name in ours if ours[name] != theirs[name]} <= {"time/seconds"}
    if backend == "torch":
        some = train(tmp_path, small("r2d3", **PAPER | share | options | {"demonstration_share": 0.25}), **OPTIONS)
        assert not same(parameters(r2d2), parameters(some))
        shares = [line["learn/demonstrations"] for line in some.metrics()[2:]]
        assert np.mean(shares) == pytest.approx(0.25, abs=0.08)  # of some 40 batches of 8, sd .025


@pytest.mark.parametrize("name", ["dqfd", "r2d3", "bc"])
def test_pretraining_comes_before_the_first_step(tmp_path: Path, demos: str, name: str):
    """So many updates; and ε, the steps and what is due later are as without."""
    seen: list[tuple[int, int]] = []

    def watch(trainer: Trainer) -> None:
        seen.append((trainer.step, trainer.learner.updates))

    options = SEQUENCES | CHOICES | {"demonstrations": demos, "random_steps": 0}
    options |= {"recurrent": "none"} if name == "dqfd" else {}
    train(tmp_path, small(name, pretraining_updates=7, **options), callbacks=[watch], name="with", **OPTIONS)
    assert seen[:8] == [*((0, i) for i in range(1, 8)), (1, 7)]
    later = [(step, updates - 7) for step, updates in seen[7:]]
    seen.clear()
    train(tmp_path, small(name, **options), callbacks=[watch], name="without", **OPTIONS)
    assert seen == later


def test_what_a_person_sees_of_pretraining(tmp_path: Path, demos: str, monkeypatch: pytest.MonkeyPatch):
    """How much of it is left, before there is any step."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    console = Console(record=True, width=140, file=io.StringIO())
    agent = small("dqfd", demonstrations=demos, pretraining_updates=3)
    with progress.ProgressDisplay(console) as display:
        train(tmp_path, agent, callbacks=[display], **OPTIONS | {"steps": 2})
    lines = [line for line in console.export_text().splitlines() if line.startswith("step")]
    assert lines[:2] == [f"step         0  pre-training: {left} updates left" for left in (2, 1)]
    assert not any("pre-training" in line for line in lines[2:])


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_behaviour_cloning_imitates_a_rule(tmp_path: Path, recurrent: str):
    """Of 8 episodes of 100 steps; then the pole stays up, and of what the expert does elsewhere most is known."""
    folder = recorded(tmp_path / "demos", episodes(8, 100), options={"max_episode_steps": 100})
    options: dict[str, Any] = {"hidden": (32,), "head_hidden": (), "learning_rate": 5e-3, "adam_epsilon": 1e-8}
    options |= {"recurrent_size": 16, "unroll": 10, "overlap": 5, "burn_in": 0, "batch_size": 16}
    agent = duetto.BC(demonstrations=folder, recurrent=recurrent, pretraining_updates=300, **options)
    given = OPTIONS | {"environment_options": {"max_episode_steps": 100}}
    run = train(tmp_path, agent, **given | {"steps": 1, "evaluate_every": 1, "evaluation_episodes": 5})
    assert run.evaluations()[0]["mean_return"] < 90 < run.evaluations()[-1]["mean_return"]
    if recurrent == "none":
        (unseen,) = episodes(13, 100)[-1:]
        policy = run.agent()
        right = [policy.act(obs) == expert(obs) for obs in unseen.obs]
        assert np.mean(right) > 0.8  # half of it would be chance


# ---------------------------------------------------------------------------------------------------- the folder


def test_a_folder_without_demonstrations_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"nowhere holds no demonstrations\. Make some: duetto demos record"):
        train(tmp_path, small("dqfd", demonstrations=str(tmp_path / "nowhere")), **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_demonstrations_of_another_environment_are_refused(tmp_path: Path, demos: str):
    """Another environment, or other options of it; both are shown."""
    agent = small("dqfd", demonstrations=demos)
    with pytest.raises(UsageError, match=r"(?s)another environment.*37 in the demonstrations.*38 in training"):
        train(tmp_path, agent, **OPTIONS | {"environment_options": {"max_episode_steps": 38}})
    other = recorded(tmp_path / "other", environment="CartPole-v0")
    with pytest.raises(
        UsageError, match=r"(?s)another environment.*\n  environment: CartPole-v0 in .*, CartPole-v1 in"
    ):
        train(tmp_path, small("dqfd", demonstrations=other), **OPTIONS)
    with pytest.raises(UsageError, match=r"(?s)another environment.*environment: .*observations: .*actions: "):
        train(tmp_path, agent, **OPTIONS | {"environment": "Acrobot-v1"})
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("name", ["dqfd", "r2d3", "bc"])
def test_a_trained_agent_needs_no_demonstrations(tmp_path: Path, demos: str, name: str):
    folder = str(shutil.copytree(demos, tmp_path / "demos"))
    agent = small(name, demonstrations=folder, **SEQUENCES | CHOICES | ({"recurrent": "none"} if name == "bc" else {}))
    run = train(tmp_path, agent, **OPTIONS | {"evaluate_every": 60, "steps": 60})
    shutil.rmtree(folder)
    run = duetto.Run(run.path)
    assert duetto.load(run.path).act(np.zeros(4, np.float32)) in (0, 1)
    assert duetto.load(run.path, "best", backend="jax" if name == "bc" else None).step in (0, 60)
    assert len(run.evaluate(episodes=2).returns) == 2
    assert run.video(tmp_path / "it.mp4").stat().st_size > 0
