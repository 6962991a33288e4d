"""Edge cases of recurrent learners: actions of any shape, PPO in bfloat16, cuDNN's train mode."""

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


@pytest.mark.parametrize(("name", "action"), [("td3", SQUARE), ("ppo", JOINT)])
def test_recurrent_learners_accept_actions_of_any_shape(name: str, action: Space):
    """Both frameworks agree. Box actions are flat rows, whatever the shape of the action space."""
    conformance._compare(Trial(quick_algorithm(ALGORITHMS[name], None, recurrent="gru"), VECTOR, action))


class CustomAgent(torch.nn.Module):
    """A custom policy and value network."""

    def __init__(self, observation: Any, action_size: int):
        super().__init__()
        self.policy, self.value = (torch.nn.Linear(observation.size, size) for size in (action_size, 1))

    def forward(self, obs: Any) -> Any:
        return self.policy(obs), self.value(obs)[:, 0]


@pytest.mark.parametrize(
    ("backend", "options"),
    [("torch", {"agent_network": CustomNetwork(torch=CustomAgent)}), ("jax", {"recurrent": "gru"})],
)
def test_ppo_trains_in_bfloat16(backend: Backend, options: dict[str, Any], tmp_path: Path):
    trial = Trial(quick_algorithm(ALGORITHMS["ppo"], None, **options), VECTOR, Discrete(3))
    with closing(trial.trainer(backend, tmp_path, precision="bf16")) as trainer:
        trainer.run()
        assert trainer.learner.updates > 0


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_layers_run_in_train_mode(kind: str, monkeypatch: pytest.MonkeyPatch):
    """cuDNN gives gradients only in train mode. On a CPU the mode makes no difference."""
    train_flags: list[bool] = []
    layer = getattr(torch, kind)

    def record_train_flag(*given: Any) -> Any:
        train_flags.append(given[6])  # x, state, weights, biases, layers, dropout, train, ...
        return layer(*given)

    monkeypatch.setattr(torch, kind, record_train_flag)
    trial = Trial(quick_algorithm(ALGORITHMS["dqn"], None, recurrent=kind), VECTOR, Discrete(3))
    conformance._learner(trial, "torch").update(trial.batches(1)[0])
    assert train_flags
    assert all(train_flags)
