"""A user's own PyTorch modules: in train mode while they learn, in eval mode while they act and as targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from learning_cases import ACTION, VECTOR, small
from torch import nn

from duetto import learners
from duetto.algorithms import TD3
from duetto.networks.specs import CustomNetwork
from duetto.testing.trials import Trial


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return np.array_equal(one, other)


class Normalised(nn.Module):
    """An actor with a batch's statistics, and dropout."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__()
        self.inside = nn.Linear(observation.size, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.outside = nn.Linear(8, action_size)

    def forward(self, obs: Any) -> Any:
        return torch.tanh(self.outside(self.drop(torch.relu(self.norm(self.inside(obs))))))


def algorithm(**options: Any) -> TD3:
    return small(TD3, actor_network=CustomNetwork(torch=Normalised), policy_delay=1, **options)


def learner() -> Any:
    return learners.build("torch", algorithm(), VECTOR, ACTION, seed=3, threads=1)


def test_acting_draws_nothing_and_leaves_statistics_as_they_are():
    one = learner()
    before = one.parameters()
    obs = np.random.default_rng(0).normal(size=(7, *VECTOR.shape)).astype(np.float32)
    acted = [one.act(obs, None) for _ in range(3)]
    alone = np.concatenate([one.act(row[None], None) for row in obs])  # a batch of one has no statistics of its own
    assert np.array_equal(acted[0], acted[1])
    assert np.array_equal(acted[1], acted[2])
    np.testing.assert_allclose(acted[0], alone, atol=1e-6)
    assert same(one.parameters(), before)


def test_learning_does_and_its_targets_follow_without():
    one, other = learner(), learner()
    batches = Trial(small(TD3), VECTOR, ACTION).batches(4)
    before = one.parameters()
    seen: list[tuple[bool, bool]] = []
    update = one.algorithm.update

    def looked(*given: Any) -> None:
        seen.append(tuple(one._nets[name]._modules[0].training for name in ("actor", "target_actor")))
        update(*given)

    one.algorithm.__dict__["update"] = looked
    for batch in batches[:2]:
        one.update(batch), other.update(batch)
    assert seen == [(True, False)] * 2
    after = one.parameters()
    assert same(after, other.parameters())  # dropout, too, follows from the seed
    for name in ("norm.running_mean", "norm.running_var"):
        assert not np.array_equal(after["actor"][name], before["actor"][name])
        assert np.array_equal(after["actor"][name], after["target_actor"][name])
    state = other.state_dict()
    third = learner()
    torch.manual_seed(99)  # whoever drew meanwhile
    third.load_state_dict(state)
    for batch in batches[2:]:
        third.update(batch), other.update(batch)
    assert same(third.parameters(), other.parameters())


def test_what_dropout_drops_is_another_part_in_each_update():
    """At one place the same update twice, but for its number."""
    one, batch = learner(), Trial(small(TD3), VECTOR, ACTION).batches(1)[0]
    found, state = [], one.state_dict()
    for number in (0, 0, 1):
        one.load_state_dict(state)
        one.updates = number
        one.update(batch)
        found.append(one.parameters()["actor"]["outside.weight"])
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
