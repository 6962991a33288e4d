"""Rollouts: checkpoints, interrupted episodes, and recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rollout_cases import build, o5_steps, only_batch, step

from duetto.buffers import Experience
from duetto.errors import CheckpointError
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.storage.tree_codec import decode_tree, encode_tree

IMAGE = Box((2, 3, 3), "uint8", (0,), (255,))
DICT_SPACE = Dict((("image", IMAGE), ("joints", Box((2,), "float32", (-1, -1), (1, 1))), ("mission", Discrete(9))))


def random_dict_observation(random: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "image": random.integers(256, size=(2, 2, 3, 3), dtype=np.uint8),
        "joints": random.normal(size=(2, 2)).astype(np.float32),
        "mission": random.integers(9, size=2),
    }


def value(obs: Any) -> np.ndarray:
    if not isinstance(obs, dict):
        return obs.astype(np.float32)
    return obs["joints"].sum(axis=1) + obs["mission"] + obs["image"].mean(axis=(1, 2, 3)).astype(np.float32)


def random_steps(observe: Any, count: int) -> list[Experience]:
    random = np.random.default_rng(0)
    observed = [observe(random) for _ in range(count + 1)]
    return [
        Experience(
            env=np.arange(2),
            obs=observed[time],
            action=random.integers(4, size=2),
            reward=random.normal(size=2).astype(np.float32),
            next_obs=observed[time + 1],
            terminated=random.random(2) < 0.2,
            truncated=random.random(2) < 0.5,
            extras={name: random.normal(size=2).astype(np.float32) for name in ("log_prob", "value")},
        )
        for time in range(count)
    ]


@pytest.mark.parametrize("after", [0, 1, 3, 4, 5])
@pytest.mark.parametrize(
    ("space", "observe"),
    [(DICT_SPACE, random_dict_observation), (Discrete(9), lambda random: random.integers(9, size=2))],
    ids=["dict", "discrete"],
)
def test_restored_rollout_continues_exactly(space: Any, observe: Any, after: int):
    """Also before the first step, after truncated episodes, and between two rollouts of four steps."""
    ours, again = (build(2, value, space) for _ in range(2))
    steps = random_steps(observe, 8)
    for experience in steps[:after]:
        ours.add(experience)
        list(ours.due())
    again.load_state_dict(decode_tree("state", encode_tree("state", ours.state_dict())))
    assert len(again) == len(ours)
    for experience in steps[after:]:
        for rollout in (ours, again):
            rollout.add(experience)
        for sample, other in zip(ours.due(), again.due(), strict=True):
            np.testing.assert_equal(sample.batch._asdict(), other.batch._asdict())
    assert encode_tree("state", ours.state_dict()) == encode_tree("state", again.state_dict())


def test_rollout_state_dict_is_a_copy():
    rollout = build()
    steps = o5_steps()
    for experience in steps[:3]:
        rollout.add(experience)
    state, kept = rollout.state_dict(), encode_tree("state", rollout.state_dict())
    rollout.add(steps[3])
    list(rollout.due())
    rollout.add(step(100, 200))
    assert encode_tree("state", state) == kept


def test_checkpoint_of_another_buffer_is_refused():
    with pytest.raises(CheckpointError) as refusal:
        build(2, steps=3).load_state_dict(build(2).state_dict())
    assert str(refusal.value) == (
        "The checkpoint's rollout has 4 steps of 2 environments, but this run's has 3 of 2. "
        "Set rollout_steps and num_envs back."
    )
    with pytest.raises(CheckpointError, match="contains a replay buffer, but this run learns from rollouts"):
        build().load_segment({})


def test_interrupted_episode_is_truncated():
    """Environment 1 has terminated, so the interruption does not affect it. A second interruption has no effect."""
    rollout = build(2)
    rollout.add(step([0, 0], [1, 1]))
    rollout.add(step([1, 1], [2, 2], terminated=[False, True]))
    for _ in range(2):
        rollout.interrupt()
    rollout.add(step([7, 7], [8, 8]))
    rollout.add(step([8, 8], [9, 9]))
    found = only_batch(rollout).advantage.reshape(4, 2)
    last = 0.9 * 8 - 7 + 0.72 * (0.9 * 9 - 8)
    np.testing.assert_allclose(found[:, 0], [0.9 + 0.72 * 0.8, 0.8, last, 0.1], rtol=1e-5)  # .9 · 2 - 1 = .8
    np.testing.assert_allclose(found[:, 1], [0.9 - 0.72, -1, last, 0.1], rtol=1e-5)


def test_recurrent_advantages_are_recomputed_with_new_values():
    """The value function gets sequences (N, T) of steps, and windows (N, 1) of final observations.

    V is the observation's value plus the carry, 0.25, and 1 more after the first epoch: δ = r + γ V' - V.
    """
    more = [0.0]

    def values(window: SequenceInput) -> np.ndarray:
        found = window.obs[..., 1] + window.carry["h"] + more[0]
        return found[:, 0] if window.query_steps is None else found

    rollout = build(2, values, steps=3, epochs=2, trace=0.0, recurrent=True, recompute_advantages=True)
    carry = {f"{prefix}/h": np.full((2, 1), 0.25, np.float32) for prefix in ("carry", "next_carry")}
    context = {"previous_action": np.zeros(2, np.int64), "seen_reward": np.zeros(2, np.float32)}
    context |= {"previous_reward": np.zeros(2, np.float32), "starts": np.zeros(2, bool)}
    for time in range(3):
        taken = step([time, 10 * time], [time + 1, 10 * time + 5], reward=1, truncated=[False, time == 1])
        collected = {"value": taken.extras["value"] + np.float32(0.25)}
        rollout.add(taken._replace(extras=taken.extras | collected | context | carry))
    for sample in rollout.due():
        value = np.array([[0, 1, 2], [0, 10, 20]]) + 0.25 + more[0]
        following = np.array([[1, 2, 3], [10, 15, 25]]) + 0.25 + more[0]
        np.testing.assert_allclose(sample.batch.value, value)
        np.testing.assert_allclose(sample.batch.advantage, 1 + 0.9 * following - value, rtol=1e-5)
        more[0] += 1
