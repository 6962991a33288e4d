"""Raw episodes in, first priorities out: with the networks that acted, they are what the learner would feed back.

Nothing is learned, so the target network is the online one. Which items can be known is found from the episodes alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstrated import CUT, recorded
from masked_environments import Turnstile
from raw_episodes import Place, Record, Recording
from small_runs import CrashAt, CrashError, assert_same, small, train

from duetto import memory
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.base import SequenceSpec
from duetto.errors import UsageError
from duetto.functional.priorities import sequence_priority
from duetto.functional.randomness import generator
from duetto.learners.base import on_host
from duetto.runs.run import Run
from duetto.storage.config import Config, RunOptions
from duetto.training.session import Session

RANDOM = 24
# With exponent 1 a mass is the priority. No update before the run's end.
ACTOR: dict[str, Any] = {"initial_priority": "actor", "prioritized": True, "priority_exponent": 1.0}
STILL: dict[str, Any] = ACTOR | {
    "learning_starts": 10**6,
    "learning_rate": 1e-30,
    "hidden": (16,),
    "head_hidden": (),
    "discount": 0.9,
    "random_steps": RANDOM,
    "exploration": "linear",
    "exploration_start": 0.5,
    "exploration_end": 0.5,
    "replay_capacity": 180,  # the rings go round
}
SEQUENCES: dict[str, Any] = {
    "recurrent": "lstm",
    "recurrent_size": 8,
    "burn_in": 1,
    "unroll": 3,
    "overlap": 2,
    "n_step": 2,
    "learn_from_start": False,
}


def algorithm(name: str, **options: Any) -> Any:
    return ALGORITHMS[name](**STILL | (SEQUENCES if name in ("r2d2", "r2d3") else {}) | options)


def play(folder: Path, chosen: Algorithm, backend: str = "torch", make: Any = None, **options: Any) -> Session:
    """A closed session, behind its last step."""
    Recording.made.clear()
    how: Any = {"backend": backend, "device": "cpu", "threads": 1, "num_envs": 3, "steps": 300} | options
    run = RunOptions(evaluate_every=0, checkpoint_every=0, **how)
    session = Session(Config(chosen, "recorded", run), folder, make or partial(Recording, choices=True))
    try:
        session.run()
    finally:
        session.close()
    return session


def judged_by_the_learner(session: Session) -> tuple[Any, np.ndarray, np.ndarray]:
    """A batch of nearly all items, the priorities that an update gives them, and those that they have."""
    agent: Any = session.memory
    while_playing = agent.state_dict()
    sample = agent.sample(2000)
    assert len(np.unique(sample.index)) > 0.9 * len(agent)
    metrics = session.learner.update(session._prepared(sample.batch))
    errors = on_host(metrics.priority)
    spec: Any = session.config.algorithm.memory()
    if isinstance(spec, SequenceSpec):
        errors = sequence_priority(errors, sample.batch.mask, spec.priority_mix)
        position = np.searchsorted(while_playing["sequences"]["index"], sample.index)
        had = while_playing["draws"]["mass"][position]
    else:
        had = while_playing["mass"][sample.index]
    return sample.batch, errors, had


def can_be_known(place: Place, steps: int, spec: Any, random: set[tuple[int, int]]) -> bool:
    """Whether an actor knows all that the errors of the next steps of an episode are made of."""
    episode, length = place.episode, len(place.episode)
    for time in range(place.time, place.time + steps):
        ahead = min(time + spec.n_step, place.time + steps, length)
        if isinstance(spec, SequenceSpec) and not (
            time - place.time >= spec.burn_in or (spec.learn_from_start and place.time == 0)
        ):
            continue
        dead = ahead == length and episode.terminated and not spec.ignore_termination
        if (id(episode), time) in random or (not dead and (ahead == length or (id(episode), ahead) in random)):
            return False
    return True


def check(session: Session, least: float) -> None:
    """Of all items at least that share could be known, and these have the learner's priorities; the others another."""
    record = Record([env for env in Recording.made if env.episodes])
    spec: Any = session.config.algorithm.memory()
    random: set[tuple[int, int]] = set()
    for env in record.envs:
        steps = [(id(episode), time) for episode in env.episodes for time in range(len(episode))]
        random |= set(steps[: RANDOM // 3])
    batch, errors, had = judged_by_the_learner(session)
    known = np.zeros(len(had), bool)
    for row in range(len(had)):
        if isinstance(spec, SequenceSpec):
            place = record.place(batch.obs.obs[row, 0])
            steps = min(spec.burn_in + spec.unroll, len(place.episode) - place.time)
            known[row] = can_be_known(place, steps, spec, random)
        else:
            place = record.place(batch.obs[row])
            known[row] = can_be_known(place, min(spec.n_step, len(place.episode) - place.time), spec, random)
            if place.time + spec.n_step > len(place.episode) and not place.episode.over:
                known[row] = False  # more rewards are to come
    epsilon = spec.prioritization.epsilon
    np.testing.assert_allclose(had[known], errors[known] + epsilon, rtol=1e-5, atol=1e-5)
    assert np.all(had[~known] >= 1)  # a largest priority
    assert np.all(np.abs(had - errors - epsilon)[~known] > 1e-4)
    assert known.mean() > least
    assert not known.all()


CASES = [
    ("dqn", {}),
    ("dqn", {"n_step": 3}),
    ("dqn", {"n_step": 3, "double": False, "rescale_values": True, "dueling": False}),
    ("dqn", {"n_step": 2, "ignore_termination": True}),
    ("r2d2", {}),
    ("r2d2", {"learn_from_start": True, "recurrent": "gru", "rescale_values": False, "ignore_termination": True}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_first_priorities_are_the_learners(tmp_path: Path, name: str, options: dict[str, Any]):
    check(play(tmp_path, algorithm(name, **options)), 0.15)


@pytest.mark.parametrize(("name", "options"), [CASES[1], CASES[4]])
def test_on_jax_too(tmp_path: Path, name: str, options: dict[str, Any]):
    check(play(tmp_path, algorithm(name, **options), "jax"), 0.15)


def test_who_acts_behind_in_numpy_knows_it_too(tmp_path: Path):
    check(play(tmp_path, algorithm("r2d2"), act_behind=True), 0.15)


@pytest.mark.parametrize("name", ["dqfd", "r2d3"])
def test_with_demonstrations(tmp_path: Path, name: str):
    """The agent's part; the experts' enter with the largest."""
    demos = recorded(tmp_path / "demos")
    chosen = algorithm(name, demonstrations=demos, n_step=2, one_step_weight=0.5, margin_in_priority=True)
    run = RunOptions(steps=150, num_envs=3, backend="torch", device="cpu", evaluate_every=0, checkpoint_every=0)
    session = Session(Config(chosen, "CartPole-v1", run, **CUT), tmp_path / "run", "CartPole-v1")
    try:
        session.run()
    finally:
        session.close()
    state, mixed = session.memory.state_dict(), session.memory
    experts = state["experts"].get("draws", state["experts"])["mass"]
    assert set(experts[experts > 0]) == {1.0}
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
    session = play(tmp_path, algorithm("dqn", n_step=2, random_steps=0), make=Turnstile)
    _, errors, had = judged_by_the_learner(session)
    same = np.isclose(had, errors + 1e-5, rtol=1e-5, atol=1e-5)
    assert 0.6 < same.mean() < 0.9  # all but two of the 3 to 6 steps of the cut ones
    assert np.all(had[~same] >= 1)
    assert had.max() < 1e6


# ---------------------------------------------------------------------------------------------------- whole runs
WHOLE = [
    ("dqn", {"n_step": 3}),
    ("r2d2", SEQUENCES | {"head_hidden": (16,), "train_every": 2, "batch_size": 8}),
]


@pytest.mark.parametrize(("name", "options"), WHOLE)
def test_a_run_that_is_killed_goes_on_with_what_was_not_judged_yet(tmp_path: Path, name: str, options: dict[str, Any]):
    agent = small(name, **options | {"initial_priority": "actor", "prioritized": True})
    how: dict[str, Any] = {"num_envs": 2, "checkpoint_every": 50, "evaluate_every": 0}
    whole = train(tmp_path, agent, "CartPole-v1", name="whole", **how)
    with pytest.raises(CrashError):
        train(tmp_path, agent, "CartPole-v1", name="killed", callbacks=[CrashAt(130)], **how)
    assert_same(whole, Run(tmp_path / "killed").resume())


def test_without_priorities_there_are_no_first_ones(tmp_path: Path):
    with pytest.raises(UsageError, match="^initial_priority is actor, but without prioritized nothing has a priority"):
        train(tmp_path, small("dqn", initial_priority="actor"), "CartPole-v1")
    for name in ("td3", "sac", "ppo", "bc"):
        with pytest.raises(UsageError, match=f"^{name} has no hyper-parameter 'initial_priority'"):
            small(name, initial_priority="actor")
    assert not list(tmp_path.iterdir())
