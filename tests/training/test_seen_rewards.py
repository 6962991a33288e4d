"""The previous reward that recurrent networks see: the same where they act, learn and are evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_runs import small, train

from duetto.training.recurrent_state import Recurrence
from duetto.training.trainer import Trainer

LSTM = {"recurrent": "lstm", "recurrent_size": 8}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Every previous reward that a network acted with but those of an episode's first step."""
    rewards: list[np.ndarray] = []
    window = Recurrence.window

    def watched(self, obs, starts):
        made = window(self, obs, starts)
        rewards.append(made.previous_reward[~made.is_first, 0].copy())
        return made

    monkeypatch.setattr(Recurrence, "window", watched)
    return rewards


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_ppo_learns_from_what_it_acted_with(tmp_path: Path, backend: str):
    """The policy has not changed yet: in a rollout's only update, its divergence from itself is 0."""
    agent = small("ppo", **LSTM, epochs=1, minibatches=1, previous_reward="raw", policy_gain=3.0)
    run = train(tmp_path, agent, backend=backend, steps=16, log_every=16, evaluate_every=0)
    assert abs(run.metrics()[0]["learn/approx_kl"]) < 1e-6


def test_ppo_sees_rewards_unscaled_as_in_an_evaluation(tmp_path: Path, seen: list[np.ndarray]):
    agent = small("ppo", **LSTM, minibatches=1, normalize_rewards=True, previous_reward="raw")
    counts: list[int] = []

    def evaluate(trainer: Trainer) -> None:
        if trainer.step == 64:
            counts.append(len(seen))
            trainer.evaluate()

    train(tmp_path, agent, "CartPole-v1", steps=64, evaluate_every=0, callbacks=[evaluate])
    collected, evaluated = np.concatenate(seen[: counts[0]]), np.concatenate(seen[counts[0] :])
    assert len(collected) > 40
    assert len(evaluated) > 5
    assert (collected == 1).all()
    assert (evaluated == 1).all()
