"""PPO's defining properties, one test each, with learners and runs on both backends.

The loss: test_ppo_losses.py. Rollouts: tests/buffers/test_rollout.py.
Minibatches: tests/learners/test_ppo_minibatches.py.
"""

import numpy as np
import pytest
from policy_cases import ACTIONS, build, gradient, noise, rollout, small
from probes import Probe, run

from duetto.algorithms import PPO


def concatenated(name, parameters):
    """Join all parameters whose names start with `name` in one vector."""
    return np.concatenate([value.ravel() for key, value in sorted(parameters.items()) if key.startswith(name)])


class StepCounter(Probe):
    """Observes its total number of steps, so every observation is unique."""

    length, life = 5, 0

    def observe(self) -> float:
        return float(self.life)

    def pay(self, action: float) -> float:
        self.life += 1
        return 1.0


class RecordingPPO(PPO):
    """Records the data and the progress at each epoch."""

    def draw(self, random, batch):
        self.seen.append((batch.obs[:, 0].tolist(), batch.advantage.copy(), batch.log_prob.copy()))
        return super().draw(random, batch)

    def scheduled(self, progress):
        self.seen[-1] += (progress,)  # called after `draw`
        return super().scheduled(progress)


@pytest.fixture
def recorded_run(backend, tmp_path):
    """Train on 3 rollouts with 8 steps and 2 epochs each; return the trainer and recorded epochs."""
    algorithm = RecordingPPO(hidden=(8,), rollout_steps=8, epochs=2, minibatches=2)
    object.__setattr__(algorithm, "seen", [])
    return run(algorithm, StepCounter, backend, tmp_path, 24), algorithm.seen


def test_each_epoch_uses_every_rollout_step_once(recorded_run):
    """No step is lost or repeated between rollouts."""
    trainer, seen = recorded_run
    assert [steps for steps, *_ in seen] == [list(range(8 * k, 8 * k + 8)) for k in (0, 0, 1, 1, 2, 2)]
    assert trainer.learner.updates == 6
    assert trainer.learner.optimizer_state()["agent"]["steps"] == 12


def test_advantages_and_log_probs_stay_fixed_between_epochs(recorded_run):
    _, seen = recorded_run
    for (_, advantage, old, _), (_, later, same, _) in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(advantage, later)
        np.testing.assert_array_equal(old, same)
    assert not np.array_equal(seen[0][1], seen[2][1])


def test_schedules_use_progress_at_rollout_start_pitfall_26(recorded_run):
    """P1: updates on the first of three rollouts see progress 0; on the last, 2/3 and not 1."""
    _, seen = recorded_run
    assert [progress for *_, progress in seen] == pytest.approx([0, 0, 1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_value_loss_moves_policy_torso_only_if_shared(backend):
    value_only = {"minibatches": 1, "max_grad_norm": 0.0, "normalize_advantages": False}
    still = rollout()._replace(advantage=np.zeros(32, np.float32))
    apart = gradient(build(backend, small(**value_only)), still)
    assert not concatenated("policy", apart).any()
    assert concatenated("value_torso", apart).any()
    shared = gradient(build(backend, small(shared_torso=True, **value_only)), still)
    assert concatenated("torso", shared).any()
    assert not concatenated("policy_head", shared).any()


# ---------------------------------------------------------------------------------------------------- acting
@pytest.mark.parametrize("action", ACTIONS)
def test_ppo_samples_in_training_and_takes_mode_otherwise(backend, action):
    learner = build(backend, small(policy_gain=1.0), action=action)
    obs = np.repeat(rollout(1).obs, 2000, axis=0)
    space = ACTIONS[action]
    drawn, extras = learner.collect(obs, noise(space, 2000))
    best = learner.act(obs[:1])
    assert len(np.unique(drawn, axis=0)) > 3
    np.testing.assert_array_equal(learner.act(obs, noise(space, 2000)), drawn)
    _, kept = learner.collect(obs[:1], np.zeros((1, space.size), np.float32))
    assert (extras["log_prob"] <= kept["log_prob"] + 1e-5).all()
    np.testing.assert_allclose(learner.act(obs[:1], np.zeros((1, space.size), np.float32)), best)
    if action == "numbers":
        np.testing.assert_allclose(drawn.mean(axis=0), best[0], atol=0.1)
        np.testing.assert_allclose(drawn.std(axis=0), 1.0, atol=0.06)
    elif action == "choice":
        for choice in range(4):  # π(a) is the frequency of a, whose standard error is .011
            probability = np.exp(extras["log_prob"][drawn == choice])
            np.testing.assert_allclose(probability, np.mean(drawn == choice), atol=0.045)
