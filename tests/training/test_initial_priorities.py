"""Raw episodes in, first priorities out: with the networks that acted, they are what the learner would feed back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstrated import CUT, recorded
from judged_runs import SEQUENCES, algorithm, check, judged_by_the_learner, played
from masked_environments import Turnstile
from small_runs import CrashAt, CrashError, assert_same, small, train

from duetto import memory
from duetto.errors import UsageError
from duetto.functional.priorities import sequence_priority
from duetto.functional.randomness import generator
from duetto.learners.base import on_host
from duetto.runs.run import Run
from duetto.storage.config import Config, RunOptions
from duetto.training.session import Session

ROUND: dict[str, Any] = {"replay_capacity": 180}  # the rings go round
CASES = [
    ("dqn", {}),
    ("dqn", {"n_step": 3} | ROUND),
    ("dqn", {"n_step": 3, "double": False, "rescale_values": True, "dueling": False}),
    ("dqn", {"n_step": 2, "ignore_termination": True}),
    ("r2d2", {}),
    (
        "r2d2",
        {"learn_from_start": True, "recurrent": "gru", "rescale_values": False, "ignore_termination": True} | ROUND,
    ),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_first_priorities_are_the_learners(tmp_path: Path, name: str, options: dict[str, Any]):
    with played(tmp_path, algorithm(name, **options)) as session:
        check(session)


@pytest.mark.parametrize(("name", "options"), [CASES[1], CASES[4]])
def test_on_jax_too(tmp_path: Path, name: str, options: dict[str, Any]):
    with played(tmp_path, algorithm(name, **options), backend="jax") as session:
        check(session)


def test_who_acts_behind_in_numpy_knows_it_too(tmp_path: Path):
    with played(tmp_path, algorithm("r2d2"), act_behind=True) as session:
        check(session)


@pytest.mark.parametrize("name", ["dqfd", "r2d3"])
def test_with_demonstrations(tmp_path: Path, name: str):
    """The agent's part; the experts' enter with the largest."""
    demos = recorded(tmp_path / "demos")
    chosen = algorithm(name, demonstrations=demos, n_step=2, one_step_weight=0.5, margin_in_priority=True)
    run = RunOptions(steps=150, num_envs=3, backend="torch", device="cpu", evaluate_every=0, checkpoint_every=0)
    session = Session(Config(chosen, "CartPole-v1", run, **CUT), tmp_path, "CartPole-v1")
    try:
        session.run()
    finally:
        session.close()
    state, mixed = session.memory.state_dict(), session.memory
    experts = state["experts"].get("draws", state["experts"])["mass"]
    assert set(experts[experts > 0]) == {1.0}
    assert "judged" in state["agent"]
    assert "judged" not in state["experts"]
    alone: Any = memory.build(
        replace(chosen.memory(), demonstrations=None, batch_size=600),
        session.stepper.observation_space,
        session.stepper.action_space,
        3,
        generator(0, "any"),
    )
    alone.load_state_dict(state["agent"])
    alone.load_segment(mixed.segment(np.zeros(3, np.int64)))
    sample = alone.sample()
    batch = sample.batch._replace(expert=np.zeros(600, np.float32))
    errors = on_host(session.learner.update(session._prepared(batch)).priority)
    if name == "r2d3":
        errors = sequence_priority(errors, batch.mask, chosen.priority_mix)
        had = state["agent"]["draws"]["mass"][np.searchsorted(state["agent"]["sequences"]["index"], sample.index)]
    else:
        had = state["agent"]["mass"][sample.index]
    same = np.isclose(had, errors + 1e-5, rtol=1e-5, atol=1e-5)
    first = sample.stamp < 11 + chosen.burn_in + 2  # random, or the last step's window
    newest = sample.stamp >= alone.written[sample.index // alone.rows] - 6
    assert np.all(same | first | newest)
    assert same.mean() > 0.5


def test_forbidden_actions_are_no_best(tmp_path: Path):
    """Half of the actions are forbidden, and every other episode is cut."""
    with played(tmp_path, algorithm("dqn", n_step=2, random_steps=0), Turnstile) as session:
        sample, errors, had = judged_by_the_learner(session)
    _, rows = np.unique(sample.index, return_index=True)
    same = np.isclose(had, errors + 1e-5, rtol=1e-5, atol=1e-5)[rows]
    assert 0.6 < same.mean() < 0.9  # all but two of the 3 to 6 steps of the cut ones
    assert np.all(had[rows][~same] >= 1)
    assert had.max() < 1e6


# ---------------------------------------------------------------------------------------------------- whole runs
WHOLE = [
    ("dqn", {"n_step": 3}),
    ("r2d2", SEQUENCES | {"head_hidden": (16,), "train_every": 2, "batch_size": 8}),
]


@pytest.mark.parametrize(("name", "options"), WHOLE)
def test_a_run_that_is_killed_goes_on_with_what_was_not_judged_yet(tmp_path: Path, name: str, options: dict[str, Any]):
    agent = small(name, **options | {"initial_priority": "actor", "prioritized": True})
    how: dict[str, Any] = {"num_envs": 2, "steps": 120, "checkpoint_every": 26, "evaluate_every": 0}
    whole = train(tmp_path, agent, "CartPole-v1", name="whole", **how)
    with pytest.raises(CrashError):
        train(tmp_path, agent, "CartPole-v1", name="killed", callbacks=[CrashAt(80)], **how)
    assert_same(whole, Run(tmp_path / "killed").resume())


def test_without_priorities_there_are_no_first_ones(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^initial_priority is actor, but without prioritized nothing has a"):
        train(tmp_path, small("dqn", initial_priority="actor"), "CartPole-v1")
    for name in ("td3", "sac", "ppo", "bc"):
        with pytest.raises(UsageError, match=f"^{name} has no hyper-parameter 'initial_priority'"):
            small(name, initial_priority="actor")
    assert not list(tmp_path.iterdir())
