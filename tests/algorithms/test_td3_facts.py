"""What makes TD3 TD3, one test per fact, through the learners of both backends. The losses: test_td3_losses.py."""

from dataclasses import dataclass

import numpy as np
import pytest
from learning_cases import assert_same, batch, build, changed, first_moments, small

from duetto.algorithms import DDPG, TD3

EVERYTHING = {"actor", "critic", "target_actor", "target_critic"}


@dataclass(frozen=True)
class ActorAlone(TD3):
    """No critic step: what the actor's loss does by itself."""

    def update(self, learner, batch, noise, phase):
        learner.minimize("actor", self.actor_loss, batch)


def moved(learner, updates):
    """Which networks moved at each of some updates."""
    seen = []
    for seed in range(updates):
        before = learner.parameters()
        learner.update(batch(seed=seed))
        seen.append(changed(before, learner.parameters()))
    return seen


# T7: counted over the whole run, first after the 2nd critic step for a delay of 2. T8: both targets wait too.
@pytest.mark.parametrize(
    ("delay", "turns", "target_update", "otherwise"),
    [
        (1, [1, 1, 1, 1, 1, 1], "with_actor", {"critic"}),
        (2, [0, 1, 0, 1, 0, 1], "with_actor", {"critic"}),
        (3, [0, 0, 1, 0, 0, 1], "with_actor", {"critic"}),
        (2, [0, 1, 0, 1, 0, 1], "every_step", {"critic", "target_actor", "target_critic"}),
    ],
)
def test_which_networks_move_at_each_of_six_updates(backend, delay, turns, target_update, otherwise):
    learner = build(backend, small(TD3, policy_delay=delay, target_update=target_update))
    parameters = learner.parameters()
    parameters["target_actor"]["layers.0.bias"] += 1  # else it has nowhere to go before the actor's first turn
    learner.load_parameters(parameters)
    assert moved(learner, 6) == [EVERYTHING if turn else otherwise for turn in turns]


def gradients(learner, state, **shifted):
    """Every network's gradient at the first update, with some parameters shifted: critic=(member, by) for example."""
    learner.load_state_dict(state)
    parameters = learner.parameters()
    for name, (member, by) in shifted.items():
        for values in parameters[name].values():
            values[member] += by
    learner.load_parameters(parameters)
    learner.update(batch())
    return {name: first_moments(learner, name) for name in ("actor", "critic")}


def test_each_critic_has_its_own_gradient_and_the_actor_climbs_the_first(backend):
    """A changed second critic changes its own gradient, and not a bit of the first one's or of the actor's."""
    learner = build(backend, small(policy_delay=1))
    state = learner.state_dict()
    before, first, second = (gradients(learner, state, critic=(i, by)) for i, by in ((0, 0.0), (0, 0.5), (1, 0.5)))
    for name, gradient in before["critic"].items():
        assert np.any(gradient[0] != gradient[1])
        np.testing.assert_array_equal(gradient[0], second["critic"][name][0])
        assert not np.allclose(gradient[1], second["critic"][name][1])
        np.testing.assert_array_equal(gradient[1], first["critic"][name][1])
    for name, gradient in before["actor"].items():
        np.testing.assert_array_equal(gradient, second["actor"][name])
        assert not np.allclose(gradient, first["actor"][name])


def test_d3_the_actors_loss_moves_the_actor_alone(backend):
    learner = build(backend, small(ActorAlone))
    assert moved(learner, 3) == [{"actor"}] * 3
    assert all(not moment.any() for moment in first_moments(learner, "critic").values())


def test_the_actor_climbs_the_critic_that_was_just_updated(backend):
    """T7: its gradient is the new critic's, not the old one's."""
    learner, alone = build(backend, small(policy_delay=1, critic_learning_rate=0.1)), build(backend, small(ActorAlone))
    state = alone.state_dict()
    learner.update(batch())
    found = first_moments(learner, "actor")["layers.2.weight"]
    old = gradients(alone, state)["actor"]["layers.2.weight"]
    state["parameters"]["critic"] = learner.parameters()["critic"]
    new = gradients(alone, state)["actor"]["layers.2.weight"]
    np.testing.assert_allclose(found, new, rtol=1e-4, atol=1e-7)
    assert not np.allclose(found, old, rtol=1e-2)


def test_without_its_three_changes_it_is_ddpg_bit_for_bit(backend):
    learners = [
        build(backend, small(DDPG)),
        build(backend, small(TD3, twin_critic=False, target_noise=0.0, policy_delay=1)),
    ]
    for seed in range(5):
        for learner in learners:
            learner.update(batch(seed=seed, weighted=True))
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
