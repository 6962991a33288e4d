"""TD3's defining properties, one test each, on learners of both backends. The losses: test_td3_losses.py."""

import numpy as np
import pytest
from learning_cases import assert_same, batch, build, changed, first_moments, small

from duetto.algorithms import DDPG, TD3

ALL_NETWORKS = {"actor", "critic", "target_actor", "target_critic"}


def networks_moved(learner, updates):
    """Return the set of networks that each update moves."""
    seen = []
    for seed in range(updates):
        before = learner.parameters()
        learner.update(batch(seed=seed))
        seen.append(changed(before, learner.parameters()))
    return seen


# T7: with a delay of 2 the actor first moves at the 2nd update of the run. T8: both targets move with the actor.
@pytest.mark.parametrize(
    ("delay", "actor_moves", "target_update", "otherwise"),
    [
        (1, [1, 1, 1, 1, 1, 1], "with_actor", {"critic"}),
        (2, [0, 1, 0, 1, 0, 1], "with_actor", {"critic"}),
        (3, [0, 0, 1, 0, 0, 1], "with_actor", {"critic"}),
        (2, [0, 1, 0, 1, 0, 1], "every_step", {"critic", "target_actor", "target_critic"}),
    ],
)
def test_policy_delay_and_target_update_select_moving_networks(backend, delay, actor_moves, target_update, otherwise):
    learner = build(backend, small(TD3, policy_delay=delay, target_update=target_update))
    parameters = learner.parameters()
    parameters["target_actor"]["layers.0.bias"] += 1  # else it equals the actor, which has not moved yet
    learner.load_parameters(parameters)
    assert networks_moved(learner, 6) == [ALL_NETWORKS if moves else otherwise for moves in actor_moves]


def gradients(learner, state, **shifted):
    """Return the gradients at the first update. critic=(member, by) first shifts that member's parameters."""
    learner.load_state_dict(state)
    parameters = learner.parameters()
    for name, (member, by) in shifted.items():
        for values in parameters[name].values():
            values[member] += by
    learner.load_parameters(parameters)
    learner.update(batch())
    return {name: first_moments(learner, name) for name in ("actor", "critic")}


def test_critic_gradients_are_independent_and_actor_uses_first(backend):
    """Shifting the second critic changes only its own gradient, not the first critic's or the actor's."""
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


def test_td3_without_its_changes_equals_ddpg(backend):
    learners = [
        build(backend, small(DDPG)),
        build(backend, small(TD3, twin_critic=False, target_noise=0.0, policy_delay=1)),
    ]
    for seed in range(5):
        for learner in learners:
            learner.update(batch(seed=seed, weighted=True))
    ours, theirs = (learner.parameters() for learner in learners)
    for name in ALL_NETWORKS:
        assert_same(ours[name], theirs[name])
