"""Recurrent learners at their edges: actions of every shape, bfloat16 with rollouts, what cuDNN asks for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from learning_cases import VECTOR

from duetto.algorithms import ALGORITHMS
from duetto.learners import Backend
from duetto.networks.spaces import Box, Dict, Discrete, Space
from duetto.networks.specs import CustomNetwork
from duetto.testing import conformance
from duetto.testing.trials import Trial, quick_algorithm

SQUARE, SCALAR = Box((2, 2), "float32", (-1.0,), (1.0,)), Box((), "float32", (-1.0,), (1.0,))
JOINT = Dict((("aim", SCALAR), ("go", Discrete(3)), ("grip", SQUARE)))


@pytest.mark.parametrize(
    ("name", "action"),
    [("td3", SQUARE), ("td3", SCALAR), ("sac", SQUARE), ("ppo", SQUARE), ("ppo", SCALAR), ("ppo", JOINT)],
)
def test_actions_of_every_shape_are_remembered(name: str, action: Space):
    """Both frameworks, by value: a Box's actions come in rows, whatever the environment's shape is."""
    conformance._compare(Trial(quick_algorithm(ALGORITHMS[name], None, recurrent="gru"), VECTOR, action))


class Agent(torch.nn.Module):
    """A policy and a value of a user's own."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__()
        self.policy, self.value = (torch.nn.Linear(observation.size, size) for size in (action_size, 1))

    def forward(self, obs: Any) -> Any:
        return self.policy(obs), self.value(obs)[:, 0]


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize(
    "options", [{"recurrent": "gru"}, {"recurrent": "lstm"}, {"agent_network": CustomNetwork(torch=Agent)}]
)
def test_rollouts_in_bfloat16(backend: Backend, options: dict[str, Any], tmp_path: Path):
    if backend == "jax" and "agent_network" in options:
        pytest.skip("that network is PyTorch's")
    trial = Trial(quick_algorithm(ALGORITHMS["ppo"], None, **options), VECTOR, Discrete(3))
    with closing(trial.trainer(backend, tmp_path, precision="bf16")) as trainer:
        trainer.run()
        assert trainer.learner.updates > 0


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_layers_are_asked_for_as_in_training(kind: str, monkeypatch: pytest.MonkeyPatch):
    """cuDNN gives no gradients otherwise; on a processor it makes no difference."""
    asked: list[bool] = []
    layer = getattr(torch, kind)

    def noted(*given: Any) -> Any:
        asked.append(given[6])  # x, state, weights, biases, layers, dropout, train, ...
        return layer(*given)

    monkeypatch.setattr(torch, kind, noted)
    trial = Trial(quick_algorithm(ALGORITHMS["dqn"], None, recurrent=kind), VECTOR, Discrete(3))
    conformance._learner(trial, "torch").update(trial.batches(1)[0])
    assert asked
    assert all(asked)
