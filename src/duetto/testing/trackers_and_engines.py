"""Conformance checks for custom trackers and Gymnasium vector environments."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from duetto import environments
from duetto.algorithms import TD3
from duetto.environments import obs_tree
from duetto.testing.conformance import flat
from duetto.testing.trials import ACTIONS, OBSERVATIONS, Trial, quick_algorithm
from duetto.trackers import Tracker, callbacks, tracking

STEPS = 300  # of a vector environment


def check_tracker(make: Callable[[], Tracker]) -> None:
    """Check a tracker: track a short run, then resume the run with a new tracker from `make`.

    Raises AssertionError if a method of the tracker fails, or if the new tracker does not continue the tracked run.
    """
    trial = Trial(quick_algorithm(TD3), OBSERVATIONS["vector"], ACTIONS["numbers"])
    known: list[str | None] = []
    with TemporaryDirectory() as parent:
        folder = Path(parent)
        for steps in (24, 48):
            tracker = make()
            how = {"steps": steps, "evaluate_every": 12, "evaluation_episodes": 1, "log_every": 6}
            with closing(trial.trainer("torch", folder, **how)) as trainer:
                if known:
                    trainer.resume(trainer.checkpoints.store.load_latest())
                trainer.run(callbacks([tracker]))
            failures = [notice for notice in trainer.notices if f"The tracker {tracker.name} failed" in notice]
            assert not failures, failures[0]
            known.append(tracking.read(folder / tracking.FOLDER / f"{tracker.name}.txt"))
    assert known[0] == known[1], f"start(known={known[0]!r}) returned {known[1]!r}: the tracked run was not continued"


def check_engine(make: Callable[[], Any]) -> None:
    """Check a Gymnasium vector environment: compare two objects from `make` with the same seeds and random actions.

    Raises AssertionError if their results differ, if a step changes an observation that an earlier step returned, or if
    no episode ends. Raises DuettoError for wrong shapes, values that are not finite, and steps that do not match the
    autoreset mode.
    """
    random, ended = np.random.default_rng(0), 0
    with closing(environments.make(make())) as envs, closing(environments.make(make())) as others:
        for each in (envs, others):
            each.reset(0)
        for step in range(STEPS):
            before = obs_tree.copy(envs.obs)
            action = envs.sample_actions(random)
            (transition, episodes), (again, _) = envs.step(action), others.step(action)
            ended += len(episodes)
            theirs = flat(again._asdict())
            for name, ours in flat(transition._asdict()).items():
                assert np.array_equal(ours, theirs[name]), f"step {step}: {name} differs with the same seed and actions"
            for name, ours in flat(transition.obs).items():
                assert np.array_equal(ours, flat(before)[name][transition.env]), f"step {step} changed obs{name}"
    assert ended, f"no episode ended in {STEPS} steps: make it shorter for the check"
