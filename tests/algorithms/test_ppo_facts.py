"""What makes PPO PPO, one test per fact of its docstring, through learners and runs of both backends.

The loss: test_ppo_losses.py. Rollouts: tests/buffers/test_rollout.py. Minibatches: tests/learners/test_ppo_parity.py.
"""

import gymnasium
import numpy as np
import pytest
from learning_cases import first_moments
from policy_cases import ACTIONS, build, gradient, noise, rollout, small
from probes import run

from duetto.algorithms import PPO


def of(name, parameters):
    """The parameters of one part, in one vector."""
    return np.concatenate([value.ravel() for key, value in sorted(parameters.items()) if key.startswith(name)])


def test_ratios_stay_those_to_the_policy_that_collected(backend):
    """After some epochs they are π now to π then: k3 of them is the divergence that the next epoch starts with."""
    learner = build(backend, small(minibatches=1, learning_rate=3e-3))
    one = rollout(64)
    action, extras = learner.collect(one.obs, noise(ACTIONS["choice"], 64))
    one = one._replace(action=action, **extras)
    divergences = []
    for _ in range(4):
        log_ratio = log_prob(learner, one) - extras["log_prob"]
        expected = np.mean(np.exp(log_ratio) - 1 - log_ratio)
        divergences.append(learner.update(one).value("approx_kl"))
        assert divergences[-1] == pytest.approx(expected, rel=1e-3, abs=1e-7)
    assert divergences[0] < 1e-7 < divergences[1] < divergences[2] < divergences[3]


def log_prob(learner, batch):
    """log π(a|s) of a batch's own actions, with the parameters of the moment: of each choice, where it was taken."""
    found = np.zeros(len(batch.action), np.float32)
    for choice in range(4):
        forced = np.zeros((len(batch.action), 4), np.float32)
        forced[:, choice] = 1e6  # noise that decides
        action, extras = learner.collect(batch.obs, forced)
        assert (action == choice).all()
        found = np.where(batch.action == choice, extras["log_prob"], found)
    return found


class Once(gymnasium.Env):
    """Observes the number of the step in its life, so that none is like another."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.life = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([self.life], np.float32), {}

    def step(self, action):
        self.life += 1
        return np.array([self.life], np.float32), 1.0, False, self.life % 5 == 0, {}


class Witness(PPO):
    """Notes what every epoch is learned from, on the host."""

    def draw(self, random, batch):
        self.seen.append((batch.obs[:, 0].tolist(), batch.advantage.copy(), batch.log_prob.copy()))
        return super().draw(random, batch)

    def scheduled(self, progress):
        self.seen[-1] += (progress,)  # asked for after the update's random numbers
        return super().scheduled(progress)


@pytest.fixture
def witnessed(backend, tmp_path):
    """Three rollouts of 8 steps, 2 epochs each: the run and what was learned from."""
    algorithm = Witness(hidden=(8,), rollout_steps=8, epochs=2, minibatches=2)
    object.__setattr__(algorithm, "seen", [])
    return run(algorithm, Once, backend, tmp_path, 24), algorithm.seen


def test_every_step_is_seen_once_in_each_epoch_and_then_forgotten(witnessed):
    """Nothing between two rollouts is lost, nothing comes twice."""
    trainer, seen = witnessed
    assert [steps for steps, *_ in seen] == [list(range(8 * k, 8 * k + 8)) for k in (0, 0, 1, 1, 2, 2)]
    assert trainer.learner.updates == 6
    assert trainer.learner.optimizer_state()["agent"]["steps"] == 12


def test_what_it_was_collected_with_stays_fixed_between_epochs(witnessed):
    _, seen = witnessed
    for (_, advantage, old, _), (_, later, same, _) in zip(seen[::2], seen[1::2], strict=True):
        np.testing.assert_array_equal(advantage, later)
        np.testing.assert_array_equal(old, same)
    assert not np.array_equal(seen[0][1], seen[2][1])


def test_pitfall_26_schedules_stand_where_the_rollouts_policy_began_to_collect(witnessed):
    """P1: of three rollouts the first is learned from at progress 0, the last at 2/3 and not at 1."""
    _, seen = witnessed
    assert [progress for *_, progress in seen] == pytest.approx([0, 0, 1 / 3, 1 / 3, 2 / 3, 2 / 3])


def test_policy_and_value_are_updated_together_by_one_optimiser(backend):
    learner = build(backend)
    before = learner.parameters()["agent"]
    learner.update(rollout())
    after = learner.parameters()["agent"]
    assert list(learner.optimizer_state()) == ["agent"]
    for part in ("policy_torso", "policy_head", "value_torso", "value_head"):
        assert not np.array_equal(of(part, before), of(part, after))


def test_p13_one_norm_over_all_parameters_is_clipped(backend):
    """To .5, policy's and value's gradients by the same factor; what it was before is in the metrics."""
    one = rollout()
    plain = gradient(build(backend, small(minibatches=1, max_grad_norm=0.0)), one)
    norm = np.linalg.norm(of("", plain))
    assert norm > 0.5
    clipping = build(backend, small(minibatches=1, max_grad_norm=0.5))
    metrics = clipping.update(one)
    clipped = {name: 10 * moment for name, moment in first_moments(clipping, "agent").items()}
    assert np.linalg.norm(of("", clipped)) == pytest.approx(0.5, rel=1e-5)
    for part in ("policy", "value"):
        np.testing.assert_allclose(of(part, clipped), of(part, plain) * 0.5 / norm, rtol=1e-3, atol=1e-7)
    assert metrics.value("agent_gradient_norm") == pytest.approx(norm, rel=1e-5)


def test_policy_and_value_have_torsos_of_their_own_or_share_one(backend):
    """Apart, the value's loss leaves the policy's torso alone; shared, it moves the torso."""
    value_only = {"minibatches": 1, "max_grad_norm": 0.0, "normalize_advantages": False}
    still = rollout()._replace(advantage=np.zeros(32, np.float32))
    apart = gradient(build(backend, small(**value_only)), still)
    assert not of("policy", apart).any()
    assert of("value_torso", apart).any()
    shared = gradient(build(backend, small(shared_torso=True, **value_only)), still)
    assert of("torso", shared).any()
    assert not of("policy_head", shared).any()


# ---------------------------------------------------------------------------------------------------- acting
@pytest.mark.parametrize("action", ACTIONS)
def test_it_samples_to_learn_and_takes_the_likeliest_otherwise(backend, action):
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
        for choice in range(4):  # log π(a) is that of the choice's own frequency, with a standard error of .011
            probability = np.exp(extras["log_prob"][drawn == choice])
            np.testing.assert_allclose(probability, np.mean(drawn == choice), atol=0.045)


@pytest.mark.parametrize("stochastic", [False, True])
def test_evaluations_sample_where_asked_to(stochastic):
    drawn = (
        small(stochastic_evaluation=stochastic)
        .explorer()
        .for_evaluation(np.random.default_rng(0), 5, ACTIONS["choice"])
    )
    assert (drawn is None) != stochastic
    assert drawn is None or drawn.shape == (5, 4)
