"""Values of a recurrent rollout that are computed anew: all of the new parameters, those behind ends too."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from duetto import buffers, learners
from duetto.algorithms import PPO
from duetto.buffers import Experience
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Discrete
from duetto.training.policy import Recurrence

T, N, DISCOUNT = 6, 2, 0.9
OBS, ACTION = Box((2,), "float32", (-9.0,) * 2, (9.0,) * 2), Discrete(2)
#         step    0  1  2  3  4  5
# environment 0   s  s  s  s  s  s |    E: truncated; what it led to is no step of the rollout
# environment 1   s  s  E  s  s  s |
END = (2, 1)


class Played:
    """A rollout of an LSTM that is complete, and what it was made of, to be played again."""

    def __init__(self, backend: str, **options: Any) -> None:
        chosen = {"hidden": (8,), "rollout_steps": T, "minibatches": 1, "learning_rate": 0.01, "discount": DISCOUNT}
        algorithm = PPO(**chosen, recurrent="lstm", recurrent_size=8, epochs=2, **options)
        self.learner = learners.build(backend, algorithm, OBS, ACTION, seed=0, device="cpu", threads=1)
        spec = replace(algorithm.memory(), trace=0.0)
        self.memory: Any = buffers.build(spec, OBS, ACTION, N, np.random.default_rng(0), self.learner.value)
        self.recurrence = Recurrence(self.learner, ACTION, N)
        self.steps: list[tuple[SequenceInput, np.ndarray, np.ndarray, np.ndarray]] = []
        random, starts = np.random.default_rng(1), np.ones(N, bool)
        obs = random.normal(size=(N, 2)).astype(np.float32)
        for time in range(T):
            window = self.recurrence.window(obs, starts)
            before = {f"carry/{name}": part for name, part in window.carry.items()} | {
                "previous_action": window.previous_action[:, 0],
                "previous_reward": window.previous_reward[:, 0],
                "starts": window.is_first,
            }
            (action, extras), carry = self.learner.remember("collect", window, random.gumbel(size=(N, 2)))
            self.recurrence.step(carry, action)
            reward, next_obs = (random.normal(size=shape).astype(np.float32) for shape in (N, (N, 2)))
            self.recurrence.rewarded(reward, np.arange(N))
            after = {f"next_carry/{name}": part for name, part in carry.items()}
            seen = algorithm.seen_reward(reward)
            truncated = np.array([(time, env) == END for env in range(N)])
            never, extras = np.zeros(N, bool), extras | before | after | {"seen_reward": seen}
            self.memory.add(Experience(np.arange(N), obs, action, reward, next_obs, never, truncated, extras))
            self.steps.append((window, action, seen, next_obs))
            starts = truncated
            obs = np.where(truncated[:, None], random.normal(size=(N, 2)), next_obs).astype(np.float32)

    def next_values(self) -> np.ndarray:
        """(T, N), of what each step led to, one step at a time with the carry that the step before leaves now."""
        carry, values = self.steps[0][0].carry, []
        for window, action, seen, next_obs in self.steps:
            _, carry = self.learner.remember("collect", window._replace(carry=carry), np.zeros((N, 2)))
            known = {"previous_action": action[:, None], "previous_reward": seen[:, None]}
            led_to = window._replace(obs=next_obs[:, None], **known, carry=carry, starts=np.zeros((N, 1), bool))
            values.append(self.learner.value(led_to._replace(is_first=np.zeros(N, bool))))
        return np.stack(values)


def next_values(batch: Any, reward: np.ndarray) -> np.ndarray:
    """(T, N), those that advantages of one step were made with: A = r + γ V' - V."""
    return ((batch.advantage + batch.value).reshape(N, T).T - reward) / DISCOUNT


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_with_recomputed_advantages(backend: str):
    played = Played(backend, recompute_advantages=True)
    epochs = iter(played.memory.due())
    reward = played.memory._arrays["reward"].copy()
    first = next(epochs).batch
    np.testing.assert_allclose(next_values(first, reward), played.next_values(), atol=1e-5)
    for _ in range(10):
        played.learner.update(first)
    second = next_values(next(epochs).batch, reward)
    inside = np.ones((T, N), bool)  # the states of the ends are those of the older parameters
    inside[-1], inside[END] = False, False
    np.testing.assert_allclose(second[inside], played.next_values()[inside], atol=1e-5)
