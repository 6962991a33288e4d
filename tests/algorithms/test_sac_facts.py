"""What makes SAC SAC, one test per fact, through the learners of both backends. The losses: test_sac_losses.py."""

from dataclasses import dataclass

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, assert_same, batch, build, changed, first_moments, observations, small

from duetto.algorithms import SAC

EVERYTHING = {"actor", "critic", "log_alpha", "target_critic"}


@dataclass(frozen=True)
class Alone(SAC):
    """One of the losses by itself. The temperature's is told which log π there was, in place of the rewards."""

    only: str = "actor"

    def update(self, learner, batch, noise, phase):
        if self.only == "log_alpha":
            learner.minimize("log_alpha", self.temperature_loss, batch, batch.reward)
        else:
            loss, numbers = (self.actor_loss, noise.now) if self.only == "actor" else (self.critic_loss, noise.next)
            learner.minimize(self.only, loss, batch, numbers)


@pytest.fixture(scope="module")
def learners():
    """Every kind is built once for each backend, and put back to its start."""
    made = {}

    def get(backend, only=None):
        if (backend, only) not in made:
            learner = build(backend, small(SAC) if only is None else small(Alone, only=only))
            made[backend, only] = learner, learner.state_dict()
        learner, state = made[backend, only]
        learner.load_state_dict(state)
        return learner

    return get


def shift(learner, name, by, member=...):
    """Add to all values of a network, or of one member of it."""
    parameters = learner.parameters()
    for values in parameters[name].values():
        values[member] += by
    learner.load_parameters(parameters)


def gradient(learner, name, *shifts, given=None):
    """A network's gradient at the first update (times .1), with some parameters shifted."""
    for one in shifts:
        shift(learner, *one)
    learner.update(batch() if given is None else given)
    return first_moments(learner, name)


def differ(one, other):
    return any(not np.allclose(values, other[key], rtol=1e-3, atol=1e-9) for key, values in one.items())


def test_all_networks_move_at_every_update(backend, learners):
    learner = learners(backend)
    for seed in range(3):
        before = learner.parameters()
        learner.update(batch(seed=seed))
        assert changed(before, learner.parameters()) == EVERYTHING


def test_the_next_action_comes_from_the_current_policy(backend, learners):
    """There is no target actor, and the critics' gradient feels what the actor does."""
    assert set(learners(backend).parameters()) == EVERYTHING
    before = gradient(learners(backend, "critic"), "critic")
    assert differ(before, gradient(learners(backend, "critic"), "critic", ("actor", 0.3)))


def test_the_entropy_counts_in_the_target_and_stops_where_the_episode_does(backend, learners):
    """At termination neither temperature nor policy moves the critics' gradient; elsewhere both do."""
    ended = batch()._replace(discount=np.zeros(32, np.float32))
    found = [
        gradient(learners(backend, "critic"), "critic", *shifts, given=ended)
        for shifts in ((), (("log_alpha", 2.0),), (("actor", 0.3),))
    ]
    for other in found[1:]:
        assert_same(found[0], other)
    going = gradient(learners(backend, "critic"), "critic")
    assert differ(going, gradient(learners(backend, "critic"), "critic", ("log_alpha", 2.0)))


@pytest.mark.parametrize("member", [0, 1])
def test_the_lower_of_both_targets_counts(backend, learners, member):
    """Where one twin's target is raised far above the other's, it no longer matters how far; where lowered, it does."""
    high, higher, low, lower = (
        gradient(learners(backend, "critic"), "critic", ("target_critic", by, member)) for by in (50, 60, -5, -6)
    )
    assert_same(high, higher)
    assert differ(low, lower)


@pytest.mark.parametrize("lower", [0, 1])
def test_the_lower_of_both_critics_counts_for_the_actor(backend, learners, lower):
    """TD3's actor climbs the first alone. Of the critic that is lower by far the slope counts, of the other nothing."""

    def climbed(bent=None):
        learner = learners(backend, "actor")
        parameters = learner.parameters()
        parameters["critic"]["layers.2.bias"][lower] -= 50
        if bent is not None:
            parameters["critic"]["layers.2.weight"][bent] *= 2
        learner.load_parameters(parameters)
        return gradient(learner, "actor")

    plain = climbed()
    assert_same(plain, climbed(bent=1 - lower))
    assert differ(plain, climbed(bent=lower))


def assert_close(one, other):
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=1e-4, atol=1e-8)


def test_the_actors_gradient_goes_through_the_sample(backend, learners):
    """With critics that see no action it is the entropy's alone; what the action does to a value changes it."""
    learner = learners(backend, "actor")
    parameters = learner.parameters()
    parameters["critic"]["layers.0.weight"][:, :, VECTOR.size :] = 0
    learner.load_parameters(parameters)
    blind = gradient(learner, "actor")
    assert differ(blind, gradient(learners(backend, "actor"), "actor"))


def test_the_actors_loss_moves_the_actor_alone(backend, learners):
    learner = learners(backend, "actor")
    before = learner.parameters()
    learner.update(batch())
    assert changed(before, learner.parameters()) == {"actor"}
    assert all(not moment.any() for name in ("critic", "log_alpha") for moment in first_moments(learner, name).values())


def test_the_actor_climbs_the_critics_that_were_just_updated(backend, learners):
    learner = build(backend, small(SAC, critic_learning_rate=0.1))
    learner.update(batch())
    found, critic = first_moments(learner, "actor"), learner.parameters()["critic"]
    old = gradient(learners(backend, "actor"), "actor")
    alone = learners(backend, "actor")
    alone.load_parameters(alone.parameters() | {"critic": critic})
    assert_close(found, gradient(alone, "actor"))
    assert differ(found, old)


# H̄ is -2 for two numbers. The temperature rises where log π is above 2: where the policy is less random than that.
@pytest.mark.parametrize(("log_prob", "direction"), [(1.5, -1), (2.5, 1)])
def test_the_temperature_falls_where_the_policy_is_more_random_than_the_target(backend, learners, log_prob, direction):
    learner = learners(backend, "log_alpha")
    before = learner.parameters()
    learner.update(batch()._replace(reward=np.full(32, log_prob, np.float32)))
    after = learner.parameters()
    assert changed(before, after) == {"log_alpha"}
    step = after["log_alpha"]["value"] - before["log_alpha"]["value"]
    assert step == pytest.approx(direction * 3e-4, rel=1e-3)  # Adam's first
    assert first_moments(learner, "log_alpha")["value"] == pytest.approx(0.1 * (2 - log_prob), rel=1e-5)


def test_it_is_told_the_log_probabilities_of_the_actors_loss(backend, learners):
    """Of the policy before its step; the log-probabilities of the target's actions are others."""
    learner = learners(backend)
    before = learner.parameters()["actor"]
    learner.update(batch())
    found = first_moments(learner, "log_alpha")["value"] / 0.1
    noise = SAC().draw(fresh(backend).random, batch())
    policy = gaussian(before, batch().obs)
    _, log_prob = policy.sample_and_log_prob(noise.now.astype(np.float64))
    np.testing.assert_allclose(found, -(log_prob.mean() - 2), rtol=1e-4)


def fresh(backend):
    return build(backend, small(SAC))


def gaussian(parameters, obs):
    """The policy in NumPy."""
    from learning_cases import perceptron

    from duetto.functional.distributions import SquashedGaussian

    found = perceptron(parameters, obs.astype(np.float64))
    return SquashedGaussian(found[:, :2], np.clip(found[:, 2:], -20, 2))


def test_a_fixed_temperature_has_no_optimiser_and_stays(backend):
    learner = build(backend, small(SAC, learn_temperature=False, temperature=0.2))
    assert learner.optimizer_state().keys() == {"actor", "critic"}
    before = learner.parameters()
    metrics = learner.update(batch())
    after = learner.parameters()
    assert changed(before, after) == EVERYTHING - {"log_alpha"}
    assert after["log_alpha"]["value"] == pytest.approx(np.log(0.2), rel=1e-6)
    assert "temperature" not in metrics.names


def test_evaluations_take_the_mode_unless_they_are_asked_to_sample(backend, learners):
    random, learner = np.random.default_rng(0), learners(backend)
    obs = observations(VECTOR, 3, random)
    policy = gaussian(learner.parameters()["actor"], obs)
    assert SAC().explorer().for_evaluation(random, 3, ACTION) is None
    np.testing.assert_allclose(learner.act(obs, None), policy.mode(), rtol=1e-4, atol=1e-6)
    noise = SAC(stochastic_evaluation=True).explorer().for_evaluation(random, 3, ACTION)
    assert noise.shape == (3, 2)
    np.testing.assert_allclose(learner.act(obs, noise), policy.sample(noise), rtol=1e-4, atol=1e-6)
    assert np.abs(policy.sample(noise) - policy.mode()).min() > 1e-3


def test_collecting_samples(backend, learners):
    """(N, A) standard normal numbers, other ones at each step, and no state."""
    random, state = np.random.default_rng(0), np.zeros((5000, 2), np.float32)
    drawn = [SAC().explorer().draw(random, state, step, 10, ACTION) for step in (0, 9)]
    for noise, after in drawn:
        assert noise.shape == (5000, 2)
        assert after is state
        np.testing.assert_allclose(np.cov(noise.T), np.eye(2), atol=0.06)
    assert not np.array_equal(drawn[0][0], drawn[1][0])


def test_importance_weights_are_the_critics_only(backend, learners):
    one, other = (gradient(learners(backend, "actor"), "actor", given=batch(weighted=w)) for w in (False, True))
    assert_same(one, other)
    one, other = (gradient(learners(backend, "critic"), "critic", given=batch(weighted=w)) for w in (False, True))
    assert differ(one, other)


def test_the_twins_and_their_targets_at_the_start(backend, learners):
    parameters = learners(backend).parameters()
    assert_same(parameters["critic"], parameters["target_critic"])
    for values in parameters["critic"].values():
        assert len(values) == 2
        assert not np.any(values[0] == values[1])


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_the_temperature_at_the_start(backend, temperature):
    parameters = build(backend, small(SAC, temperature=temperature)).parameters()
    assert parameters["log_alpha"].keys() == {"value"}
    assert parameters["log_alpha"]["value"].shape == ()
    assert np.exp(parameters["log_alpha"]["value"]) == pytest.approx(temperature, rel=1e-6)
