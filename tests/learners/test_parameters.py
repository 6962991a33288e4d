"""Free parameters are arrays in losses, and are trained and saved like networks; loading of parameters."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from learning_cases import assert_same, batch, build, changed, first_moments, small

from duetto.algorithms import DDPG, SAC, TD3
from duetto.errors import CheckpointError
from duetto.networks.specs import CustomNetwork, ParameterSpec


@dataclass(frozen=True)
class SacWithFreeParameter(SAC):
    """SAC with a free parameter of three numbers, which learn 1, 2 and 3, and a target copy of it."""

    def networks(self, observation, action):
        return super().networks(observation, action) | {"scales": ParameterSpec((3,), initial=0.5)}

    def optimizers(self):
        return super().optimizers() | {"scales": self.optimizer(0.1)}

    def targets(self):
        return super().targets() | {"target_scales": "scales"}

    def update(self, learner, batch, noise, phase):
        learner.minimize("scales", self.scale_loss, batch.reward[:3])
        learner.track("target_scales", "scales", 0.5)

    def scale_loss(self, nets, wanted):
        assert nets.scales.shape == nets.target_scales.shape == (3,)
        assert nets.log_alpha.shape == ()
        return ((nets.scales - wanted) ** 2).sum(), {"scales": nets.scales}


def test_free_parameter_is_trained_as_array(backend):
    """Loss .5² + 1.5² + 2.5² = 8.75; gradient [-1, -3, -5]; Adam's first step is the learning rate for each."""
    learner = build(backend, small(SacWithFreeParameter))
    before = learner.parameters()
    assert_same(before["scales"], {"value": np.full(3, 0.5, np.float32)})
    given = batch()._replace(reward=np.array([1, 2, 3] + [0] * 29, np.float32))
    metrics = learner.update(given)
    assert metrics.names == ("scales_loss", "scales_mean", "scales_min", "scales_max")
    assert metrics.value("scales_loss") == 8.75
    after = learner.parameters()
    assert changed(before, after) == {"scales", "target_scales"}
    np.testing.assert_allclose(first_moments(learner, "scales")["value"], [-0.1, -0.3, -0.5], rtol=1e-6)
    np.testing.assert_allclose(after["scales"]["value"], [0.6] * 3, rtol=1e-5)
    np.testing.assert_allclose(after["target_scales"]["value"], [0.55] * 3, rtol=1e-5)
    other = build(backend, small(SacWithFreeParameter), seed=1)
    other.load_state_dict(learner.state_dict())
    for one in (learner, other):
        one.update(given)
    assert_same(learner.parameters()["scales"], other.parameters()["scales"])


# ---------------------------------------------------------------------------------------------------- custom modules
class SharedLayerActor(torch.nn.Module):
    """A module with one layer under two names, and weights drawn by NumPy."""

    def __init__(self, observation: Any, action_size: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(observation.size, 4)
        self.whole = torch.nn.Sequential(self.first, torch.nn.Tanh(), torch.nn.Linear(4, action_size), torch.nn.Tanh())
        with torch.no_grad():
            self.first.weight.copy_(torch.from_numpy(np.random.normal(size=(4, observation.size))))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.whole(obs)


def test_target_of_shared_modules_is_polyak_averaged():
    """A shared weight must be averaged under both of its names, not copied."""
    learner = build("torch", small(DDPG, actor_network=CustomNetwork(torch=SharedLayerActor), tau=0.1))
    before = learner.parameters()
    assert before["actor"].keys() > {"first.weight", "whole.0.weight"}
    for name, values in before["actor"].items():
        np.testing.assert_array_equal(values, before["target_actor"][name])  # including weights drawn by NumPy
    learner.update(batch())
    after = learner.parameters()
    for name, values in after["actor"].items():
        assert not np.array_equal(values, before["actor"][name])
        expected = before["actor"][name] + 0.1 * (values - before["actor"][name])
        np.testing.assert_allclose(after["target_actor"][name], expected, atol=1e-7)


def test_loading_mismatched_parameters_changes_nothing(backend):
    learner, other = build(backend, small(TD3)), build(backend, small(TD3, hidden=(16, 12), critic_hidden=(9,)), seed=5)
    before, wrong = learner.parameters(), other.parameters()
    with pytest.raises(CheckpointError, match="critic"):
        learner.load_parameters(wrong)
    for name, values in before.items():
        for key, value in values.items():
            np.testing.assert_array_equal(learner.parameters()[name][key], value)
