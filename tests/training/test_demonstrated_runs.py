"""Runs that learn from demonstrations: their share of batches, pre-training, imitation, refused datasets."""

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
PAPER_LOSSES = {"margin_weight": 0.0, "one_step_weight": 0.0, "weight_decay": 0.0}


def parameters(run: duetto.Run) -> dict[str, Any]:
    return checkpoints(run).load_latest().state["learner"]["parameters"]


def test_r2d3_with_zero_demonstration_share_equals_r2d2(tmp_path: Path, demos: str):
    """With the losses of the R2D3 paper, parameters and metrics of the whole run are equal."""
    options = SEQUENCES | CHOICES
    r2d2 = train(tmp_path, small("r2d2", **options), **OPTIONS)
    share = {"demonstrations": demos, "demonstration_share": 0.0}
    r2d3 = train(tmp_path, small("r2d3", **PAPER_LOSSES | share | options), **OPTIONS)
    assert same(parameters(r2d2), parameters(r2d3))
    ours, theirs = (run.metrics()[-1] for run in (r2d2, r2d3))
    assert theirs["learn/demonstrations"] == 0
    assert {name for name in ours if ours[name] != theirs[name]} <= {"time/seconds"}
    some = train(tmp_path, small("r2d3", **PAPER_LOSSES | share | options | {"demonstration_share": 0.25}), **OPTIONS)
    assert not same(parameters(r2d2), parameters(some))
    shares = [line["learn/demonstrations"] for line in some.metrics()[2:]]
    assert np.mean(shares) == pytest.approx(0.25, abs=0.08)  # about 40 batches of 8: standard deviation 0.025


@pytest.mark.parametrize("name", ["dqfd", "bc"])
def test_pretraining_comes_before_the_first_step(tmp_path: Path, demos: str, name: str):
    """Later updates happen at the same steps as without pre-training."""
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


def test_progress_shows_remaining_pretraining_updates(tmp_path: Path, demos: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    console = Console(record=True, width=140, file=io.StringIO())
    agent = small("dqfd", demonstrations=demos, pretraining_updates=3)
    with progress.ProgressDisplay(console) as display:
        train(tmp_path, agent, callbacks=[display], **OPTIONS | {"steps": 2, "evaluate_every": 2})
    lines = [line for line in console.export_text().splitlines() if line.startswith("step")]
    evaluated = [int(line.split()[1]) for line in lines if " over " in line]
    assert evaluated == [0, 0, 2]  # before and after pre-training, and at the end
    left = [line.split("left")[0] for line in lines if "pre-training" in line]
    assert left == [f"step         0  pre-training: {number} updates " for number in (2, 1)]


def test_behavior_cloning_imitates_the_expert(tmp_path: Path):
    """8 episodes of 100 steps suffice: the return rises, and most actions in a new episode equal the expert's."""
    folder = recorded(tmp_path / "demos", episodes(8, 100), options={"max_episode_steps": 100})
    options: dict[str, Any] = {"hidden": (32,), "head_hidden": (), "recurrent_size": 32, "learning_rate": 5e-3}
    agent = duetto.BC(demonstrations=folder, pretraining_updates=300, batch_size=16, **options)
    given = OPTIONS | {"environment_options": {"max_episode_steps": 100}}
    run = train(tmp_path, agent, **given | {"steps": 1, "evaluate_every": 1, "evaluation_episodes": 5})
    assert run.evaluations()[0]["mean_return"] < 90 < run.evaluations()[-1]["mean_return"]
    unseen, policy = episodes(13, 100)[-1], run.agent()
    assert np.mean([policy.act(obs) == expert(obs) for obs in unseen.obs]) > 0.8  # random actions: 0.5


# ---------------------------------------------------------------------------------------------------- datasets


def test_unsuitable_demonstrations_are_refused(tmp_path: Path, demos: str):
    """A folder without demonstrations, other environment options, another environment."""
    for folder, options, sentence in (
        (str(tmp_path / "nowhere"), {}, r"nowhere.* contains no demonstrations\. To record some"),
        (demos, {"environment_options": {"max_episode_steps": 38}}, r"37 in the demonstrations.*38 in training"),
        (demos, {"environment": "Acrobot-v1"}, r"the training environment.*environment: .*observations: .*actions: "),
    ):
        with pytest.raises(UsageError, match=f"(?s){sentence}"):
            train(tmp_path, small("dqfd", demonstrations=folder), **OPTIONS | options)
    assert list(tmp_path.iterdir()) == []


def test_a_trained_agent_needs_no_demonstrations(tmp_path: Path, demos: str):
    folder = str(shutil.copytree(demos, tmp_path / "demos"))
    agent = small("r2d3", demonstrations=folder, **SEQUENCES | CHOICES)
    run = train(tmp_path, agent, **OPTIONS | {"evaluate_every": 60, "steps": 60})
    shutil.rmtree(folder)
    run = duetto.Run(run.path)
    assert duetto.load(run.path, "best", backend="jax").act(np.zeros(4, np.float32)) in (0, 1)
    assert len(run.evaluate(episodes=2).returns) == 2
    assert run.video(tmp_path / "it.mp4").stat().st_size > 0
