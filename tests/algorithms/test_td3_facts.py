"""What makes TD3 TD3, one test per fact, through the learners of both backends. The losses: test_td3_losses.py."""

from dataclasses import dataclass

import numpy as np
import pytest
from learning_cases import VECTOR, batch, box, build, changed, first_moments, small

from duetto.algorithms import DDPG, TD3

EVERYTHING = {"actor", "critic", "target_actor", "target_critic"}
TARGETS = {"target_actor", "target_critic"}


@dataclass(frozen=True)
class ActorAlone(TD3):
    """No critic step: what the actor's loss does by itself."""

    def update(self, learner, batch, noise, phase):
        learner.minimize("actor", self.actor_loss, batch)


def moved(learner, updates, **kind):
    """Which networks moved at each of some updates."""
    seen = []
    for seed in range(updates):
        before = learner.parameters()
        learner.update(batch(seed=seed, **kind))
        seen.append(changed(before, learner.parameters()))
    return seen


# T7: counted over the whole run, first after the 2nd critic step for a delay of 2. T8: both targets wait too.
@pytest.mark.parametrize(
    ("delay", "turns"), [(1, [1, 1, 1, 1, 1, 1]), (2, [0, 1, 0, 1, 0, 1]), (3, [0, 0, 1, 0, 0, 1])]
)
@pytest.mark.parametrize(("target_update", "otherwise"), [("with_actor", set()), ("every_step", TARGETS)])
def test_which_networks_move_at_each_of_six_updates(backend, delay, turns, target_update, otherwise):
    learner = build(backend, small(TD3, policy_delay=delay, target_update=target_update))
    assert moved(learner, 6) == [EVERYTHING if turn else {"critic"} | otherwise for turn in turns]


def test_each_critic_has_its_own_gradient(backend):
    """A changed second critic changes its own gradient, and not a bit of the first one's."""
    gradients = []
    for change in (0.0, 0.5):
        learner = build(backend, small())
        parameters = learner.parameters()
        for values in parameters["critic"].values():
            values[1] += change
        learner.load_parameters(parameters)
        learner.update(batch())
        gradients.append(first_moments(learner, "critic"))
    for name, gradient in gradients[0].items():
        assert np.any(gradient[0] != 0)
        np.testing.assert_array_equal(gradient[0], gradients[1][name][0])
        assert not np.allclose(gradient[1], gradients[1][name][1])


@pytest.mark.parametrize(("member", "matters"), [(0, True), (1, False)])
def test_the_actor_climbs_the_first_critic_only(backend, member, matters):
    gradients = []
    for change in (0.0, 0.5):
        learner = build(backend, small(TD3, policy_delay=1))
        parameters = learner.parameters()
        for values in parameters["critic"].values():
            values[member] += change
        learner.load_parameters(parameters)
        learner.update(batch())
        gradients.append(first_moments(learner, "actor"))
    equal = [np.array_equal(gradient, gradients[1][name]) for name, gradient in gradients[0].items()]
    assert not any(equal) if matters else all(equal)


def test_d3_the_actors_loss_leaves_the_critic_alone(backend):
    """Neither its parameters nor its moments, also not at the critic's next step."""
    learner = build(backend, small(ActorAlone))
    assert moved(learner, 3) == [{"actor"}] * 3
    assert all(not moment.any() for moment in first_moments(learner, "critic").values())
    delayed, prompt = build(backend, small(policy_delay=2)), build(backend, small(policy_delay=1))
    for learner in (delayed, prompt):
        learner.update(batch())
    assert_same(delayed.parameters()["critic"], prompt.parameters()["critic"])


def test_the_actor_climbs_the_critic_that_was_just_updated(backend):
    """T7: a critic that has not learned gives another gradient."""
    learner, alone = build(backend, small(policy_delay=1)), build(backend, small(ActorAlone))
    learner.update(batch())
    after = learner.parameters()
    alone.load_parameters(alone.parameters() | {"critic": after["critic"]})
    alone.update(batch())
    for name, gradient in first_moments(learner, "actor").items():
        np.testing.assert_allclose(gradient, first_moments(alone, "actor")[name], rtol=1e-4, atol=1e-7)
    before = build(backend, small(ActorAlone))
    before.update(batch())
    gradients = (first_moments(one, "actor")["layers.2.weight"] for one in (learner, before))
    assert not np.allclose(*gradients, rtol=1e-4)


def test_importance_weights_are_the_critics_only(backend):
    uniform, weighted = (batch(weighted=weighted) for weighted in (False, True))
    actors, critics = [], []
    for one in (uniform, weighted):
        alone, whole = build(backend, small(ActorAlone)), build(backend, small())
        alone.update(one)
        whole.update(one)
        actors.append(alone.parameters()["actor"])
        critics.append(first_moments(whole, "critic")["layers.2.bias"])
    assert_same(*actors)
    assert not np.allclose(*critics)


def test_without_its_three_changes_it_is_ddpg_bit_for_bit(backend):
    learners = [
        build(backend, small(DDPG)),
        build(backend, small(TD3, twin_critic=False, target_noise=0.0, policy_delay=1)),
    ]
    for seed in range(5):
        for learner in learners:
            metrics = learner.update(batch(seed=seed, weighted=True))
        del metrics
    ours, theirs = (learner.parameters() for learner in learners)
    for name in EVERYTHING:
        assert_same(ours[name], theirs[name])


def test_pitfall_18_the_twins_start_different(backend):
    for values in build(backend, small()).parameters()["critic"].values():
        assert len(values) == 2
        assert not np.any(values[0] == values[1])


@pytest.mark.parametrize("kind", [TD3, DDPG])
def test_t3_targets_start_as_exact_copies(backend, kind):
    parameters = build(backend, small(kind)).parameters()
    assert set(parameters) == EVERYTHING
    for name in ("actor", "critic"):
        assert_same(parameters[name], parameters[f"target_{name}"])


def test_t1_numbers_of_parameters(backend):
    """28·400 + 400 + 400·300 + 300 + 300·8 + 8 = 134 308; 2 · (36·400 + 400 + 400·300 + 300 + 300 + 1) = 270 802."""
    parameters = build(backend, TD3(), box(28), box(8, bound=1.0)).parameters()
    counts = {name: sum(values.size for values in net.values()) for name, net in parameters.items()}
    assert counts["actor"] == counts["target_actor"] == 134_308
    assert counts["critic"] == counts["target_critic"] == 270_802


def test_one_critic_without_the_twin(backend):
    assert build(backend, small(twin_critic=False)).parameters()["critic"]["layers.0.weight"].shape == (1, 16, 7)
    assert VECTOR.size == 5


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])
