"""Custom PyTorch modules are in train mode in updates, and in eval mode when acting and as targets."""

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


class BatchNormActor(nn.Module):
    """An actor with batch normalization and dropout."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__()
        self.inside = nn.Linear(observation.size, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.outside = nn.Linear(8, action_size)

    def forward(self, obs: Any) -> Any:
        return torch.tanh(self.outside(self.drop(torch.relu(self.norm(self.inside(obs))))))


def algorithm(**options: Any) -> TD3:
    return small(TD3, actor_network=CustomNetwork(torch=BatchNormActor), policy_delay=1, **options)


def learner() -> Any:
    return learners.build("torch", algorithm(), VECTOR, ACTION, seed=3, threads=1)


def test_acting_uses_eval_mode_and_keeps_statistics():
    one = learner()
    before, obs = one.parameters(), np.random.default_rng(0).normal(size=(7, *VECTOR.shape)).astype(np.float32)
    acted = [one.act(obs, None) for _ in range(2)]
    single_rows = np.concatenate([one.act(row[None], None) for row in obs])  # train mode fails on one row
    assert np.array_equal(*acted)
    np.testing.assert_allclose(acted[0], single_rows, atol=1e-6)
    assert same(one.parameters(), before)


def test_learning_uses_train_mode_and_targets_copy_statistics():
    """Dropout depends only on the seed and the update's number, also in a resumed run."""
    one, other = learner(), learner()
    batches = Trial(small(TD3), VECTOR, ACTION).batches(4)
    before = one.parameters()
    for batch in batches[:2]:
        one.update(batch), other.update(batch)
    after = one.parameters()
    assert same(after, other.parameters())
    for name in ("norm.running_mean", "norm.running_var"):
        assert not np.array_equal(after["actor"][name], before["actor"][name])
        assert np.array_equal(after["actor"][name], after["target_actor"][name])
    third = learner()
    torch.manual_seed(99)  # another user of the global generator
    third.load_state_dict(other.state_dict())
    for batch in batches[2:]:
        third.update(batch), other.update(batch)
    assert same(third.parameters(), other.parameters())
    one.updates += 1  # with another number the same update drops other units
    for batch in batches[2:]:
        one.update(batch)
    assert not same(one.parameters(), other.parameters())
