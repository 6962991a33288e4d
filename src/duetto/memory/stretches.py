"""What a batch reads from its stretches of successive steps.

Burn-in 2, unroll 4 (L = 6 steps, 7 observations), n = 2. A stretch from the middle of an episode; and one that begins
its episode and also ends it, after four steps:

    step                 4  5  6  7  8  9  .         step                 0  1  2  3  -  -  .
    position             0  1  2  3  4  5  6         position             0  1  2  3  4  5  6
    observation         o4 o5 o6 o7 o8 o9 o10        observation         o0 o1 o2 o3 o4 o4 o4    o4: the final one
    previous action     a3 a4 a5 a6 a7 a8 a9         previous action      . a0 a1 a2 a3 a3 a3
    starts               .  .  .  .  .  .  .         starts               x  .  .  .  .  .  .
    mask                 .  .  1  1  1  1            mask                 1  1  1  1  .  .       learn_from_start
    looks ahead to       2  3  4  5  6  6            looks ahead to       2  3  4  4  4  4
    discount             2  2  2  2  2  1            discount             2  2  e  e  .  .       n of γ^n; e: 2 and 1,
                                                                                                 0 if terminated

Rewards are summed up to the end of the stretch at most: a step near its end looks less far ahead, but none is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duetto.algorithms.base import OneStep, SequenceBatch, SequenceSpec
from duetto.functional.returns import n_step_return
from duetto.memory.episodes import EpisodeRings
from duetto.networks import masks
from duetto.networks.windows import Window


class Stretches(NamedTuple):
    """B stretches of at most L steps, each within one episode."""

    env: np.ndarray  # (B,)
    first: np.ndarray  # (B,), the number of the first step's row
    real: np.ndarray  # (B,), steps, 1 .. L
    fresh: np.ndarray  # (B,) bool, it begins its episode


def read(
    episodes: EpisodeRings, spec: SequenceSpec, stretches: Stretches, carry: dict[str, np.ndarray], weight: np.ndarray
) -> SequenceBatch:
    """Return the batch of B stretches, with the states `carry` before them and the importance weights (B,)."""
    length = spec.burn_in + spec.unroll
    step, real = np.arange(length), stretches.real[:, None]
    reward, discount = returns(episodes, spec, stretches, spec.n_step)
    window = _window(episodes, stretches, length, carry)
    action = episodes.read("action", stretches.env, stretches.first[:, None] + np.minimum(step, real - 1))
    if (allowed := masks.of(window.obs)) is not None:  # no step either that is only there to fill takes a forbidden one
        action = np.where(step < real, action, allowed[:, :length].argmax(axis=-1))
    return SequenceBatch(
        obs=window,
        action=action,
        reward=reward,
        discount=discount,
        ahead=np.minimum(step + spec.n_step, real),
        weight=weight,
        mask=learned_from(spec, stretches).astype(np.float32),
        one_step=_first_steps(episodes, spec, stretches) if spec.one_step and spec.n_step > 1 else None,
    )


def learned_from(spec: SequenceSpec, stretches: Stretches) -> np.ndarray:
    """Return a mask (B, L) bool of the steps that are learned from."""
    step = np.arange(spec.burn_in + spec.unroll)
    learned = (step >= spec.burn_in) | (stretches.fresh[:, None] & spec.learn_from_start)
    return (step < stretches.real[:, None]) & learned


def _first_steps(episodes: EpisodeRings, spec: SequenceSpec, stretches: Stretches) -> OneStep:
    step = np.arange(spec.burn_in + spec.unroll)
    return OneStep(*returns(episodes, spec, stretches, 1), np.minimum(step + 1, stretches.real[:, None]))


def _window(episodes: EpisodeRings, stretches: Stretches, length: int, carry: dict[str, np.ndarray]) -> Window:
    """Return the L + 1 observations of each stretch; where it is shorter, the last one is repeated."""
    env, first, real, fresh = stretches
    number = first[:, None] + np.minimum(np.arange(length + 1), real[:, None])
    action, reward = (episodes.read(name, env, number - 1) for name in ("action", "reward"))
    action[fresh, 0] = -1 if action.dtype.kind == "i" else 0
    reward[fresh, 0] = 0
    starts = np.zeros(number.shape, bool)
    starts[:, 0] = fresh
    at = np.tile(np.arange(length), (len(env), 1))
    return Window(episodes.observation(env, number), action, reward, starts, carry, fresh, at)


def returns(episodes: EpisodeRings, spec: SequenceSpec, stretches: Stretches, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of up to n rewards, and discounts, both (B, L) float32 and 0 behind a stretch's last step."""
    env, first, real = stretches.env, stretches.first[:, None, None], stretches.real[:, None, None]
    step = np.arange(spec.burn_in + spec.unroll)
    number = first + np.minimum(step[:, None] + np.arange(n), real - 1)  # (B, L, n)
    reward, terminated = (episodes.read(name, env, number).reshape(-1, n) for name in ("reward", "terminated"))
    if spec.ignore_termination:
        terminated[:] = False
    left = stretches.real[:, None] - step
    # Only a stretch's last step can be one where the episode is cut: `available` says so already.
    truncated, available = np.zeros_like(terminated), np.maximum(left, 1).reshape(-1)
    summed, discount, _ = n_step_return(reward, terminated, truncated, available, spec.discount)
    reward, discount = (np.where(left > 0, x.reshape(left.shape), 0).astype(np.float32) for x in (summed, discount))
    return reward, discount
