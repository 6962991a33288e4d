"""Compare environments that resume from a saved state with uninterrupted ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from duetto.environments import VecEnv, make, obs_tree


def record(stepper: VecEnv, random: np.random.Generator, steps: int) -> list[Any]:
    seen = []
    for _ in range(steps):
        row, ended = stepper.step(stepper.sample_actions(random))
        seen.append(([np.copy(array) for part in row for _, array in obs_tree.parts(part)], ended))
    return seen


def assert_equal(first: list[Any], second: list[Any]) -> None:
    for (arrays, ended), (other_arrays, other_ended) in zip(first, second, strict=True):
        assert ended == other_ended
        assert all(np.array_equal(a, b) for a, b in zip(arrays, other_arrays, strict=True))


def assert_serializable(state: Any) -> None:
    """Assert that a state has nested dicts with str keys, and arrays or JSON values as leaves."""
    if isinstance(state, dict):
        for key, value in state.items():
            assert type(key) is str
            assert_serializable(value)
    elif isinstance(state, np.ndarray):
        assert state.dtype != object
    else:
        json.dumps(state, allow_nan=False)


def check_continues(
    saving: VecEnv, resumed: VecEnv, random: np.random.Generator, steps: int
) -> tuple[dict[str, Any], list[Any]]:
    """Load the state of `saving` into `resumed`, assert equal steps, and return the state and the steps."""
    state, numbers = saving.state_dict(), random.bit_generator.state
    assert_serializable(state)
    expected = record(saving, random, steps)
    resumed.load_state_dict(state)
    assert resumed.resumed_exactly, resumed.not_restored
    random.bit_generator.state = numbers
    assert_equal(expected, record(resumed, random, steps))
    return state, expected


def check_resume(environment: Any, steps: int = 1200, **options: Any) -> None:
    """Compare three runs: uninterrupted, saved after 137 steps, and resumed from that state."""
    uninterrupted, saving, resumed = (make(environment, num_envs=2, **options) for _ in range(3))
    randoms = [np.random.default_rng(0) for _ in range(2)]
    for stepper, random in zip((uninterrupted, saving), randoms, strict=True):
        stepper.reset(3)
        record(stepper, random, 137)
    expected = record(uninterrupted, randoms[0], steps)
    assert_equal(expected, check_continues(saving, resumed, randoms[1], steps)[1])
    assert resumed.steps == 137 + steps
    assert sum(len(ended) for _, ended in expected) >= 2
    for stepper in (uninterrupted, saving, resumed):
        stepper.close()
