"""Runs in which nothing is learned, and whether their items' first priorities are the learner's.

The target network is the online one, so they are what an update feeds back. Which can be known is found from the
episodes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from raw_episodes import Place, Record, Recording

from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.base import SequenceSpec
from duetto.functional.priorities import sequence_priority
from duetto.learners.base import on_host
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
    "replay_capacity": 600,
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


@contextmanager
def played(folder: Path, chosen: Algorithm, make: Any = None, **options: Any) -> Iterator[Session]:
    """A session behind its last step."""
    Recording.made.clear()
    how: Any = {"backend": "torch", "device": "cpu", "threads": 1, "num_envs": 3, "steps": 300} | options
    run = RunOptions(evaluate_every=0, checkpoint_every=0, **how)
    session = Session(Config(chosen, "recorded", run), folder, make or partial(Recording, choices=True))
    try:
        session.run()
        yield session
    finally:
        session.close()


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
    return sample, errors, had


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


def check(session: Session, distant: bool = False) -> None:
    """Of all items at least a sixth could be known, and these have the learner's priorities; the others the largest.

    `distant` actors are ahead of the memory, whose newest items are left out.
    """
    record = Record([env for env in Recording.made if env.episodes])
    spec: Any = session.config.algorithm.memory()
    random: set[tuple[int, int]] = set()
    for env in record.envs:
        steps = [(id(episode), time) for episode in env.episodes for time in range(len(episode))]
        random |= set(steps[: session.config.algorithm.first_random_steps() // 3])
    sample, errors, had = judged_by_the_learner(session)
    batch: Any = sample.batch
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
    agent: Any = session.memory
    if distant:
        settled = sample.stamp < agent.written[sample.index // agent.rows] - 12
        known, errors, had = known[settled], errors[settled], had[settled]
    epsilon = spec.prioritization.epsilon
    np.testing.assert_allclose(had[known], errors[known] + epsilon, rtol=1e-5, atol=1e-5)
    assert np.all(had[~known] >= 1)  # a largest priority
    assert np.all(np.abs(had - errors - epsilon)[~known] > 1e-4)
    assert known.mean() > 1 / 6
    assert not known.all()
