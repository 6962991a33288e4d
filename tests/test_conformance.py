"""Every built-in algorithm passes `check_algorithm`, and the checks find broken algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

from duetto.algorithms import ALGORITHMS, DDPG, Algorithm
from duetto.errors import UsageError
from duetto.testing import check_algorithm, checks
from duetto.testing.conformance import check_options

PER: dict[str, Any] = {"prioritized": True}
LSTM: dict[str, Any] = {"recurrent": "lstm"}
OU: dict[str, Any] = {"exploration": "ou"}
LINEAR: dict[str, Any] = {"learning_rate_decay": "linear"}

# For an option, the value to try (by default chosen from its default), and other options that must be set for the
# option to have an effect. None: it has no effect in a short random run.
ALTERNATIVES: dict[str, Any] = {
    "replay_capacity": (30, {}),
    "priority_exponent": (1.0, PER),
    "priority_epsilon": (0.5, PER),
    "importance_exponent": (1.0, PER),
    "importance_anneal_samples": (5, PER),
    "recurrent": ("lstm", {}),
    "recurrent_size": (6, LSTM),
    "recurrent_layers": (2, LSTM),
    "burn_in": (1, LSTM),
    "unroll": (5, LSTM),
    "overlap": (3, LSTM),
    "stored_carry": (False, LSTM),
    "learn_from_start": (False, LSTM),
    "priority_mix": (0.1, LSTM | PER),
    "previous_reward": ("raw", LSTM),
    "learning_rate_final": (0.5, LINEAR),
    "max_grad_norm": (0.01, {}),
    "hidden": ((16,), {}),
    "head_hidden": ((4,), {}),
    "exploration_steps": (200, {"exploration": "linear", "exploration_start": 1.0}),
    "double": (False, {"learning_rate": 0.5, "tau": 0.1, "target_period": 1, "train_every": 1, "dueling": False}),
    "ou_theta": (0.5, OU),
    "ou_reset": (False, OU),
    "ladder_exponent": (0.5, {"exploration": "ladder", "exploration_start": 0.9}),
    "rescale_epsilon": (0.1, {"rescale_values": True}),
    "num_atoms": (51, {"critic": "categorical"}),
    "value_range": ((-3.0, 3.0), {"critic": "categorical"}),
    "return_bound": (0.5, {"normalize_rewards": True}),
    "exploration_end": (0.5, {"exploration": "linear"}),
    "critic_action_layer": (1, {}),
    "critic_hidden": ((8,), {}),
    "initializer_final_bound": (0.003, {}),
    "demonstration_priority_epsilon": (1.0, PER),
    "share_by_priority": (True, PER),
    "demonstrations": None,
    "image_features": None,
    "stochastic_evaluation": None,
    "evaluation_epsilon": None,
    "hindsight": None,
    "hindsight_share": None,
    "decoupled_weight_decay": (True, {"actor_weight_decay": 0.1, "weight_decay": 0.1}),
    "train_at_episode_end": (True, {"recurrent": "none"}),
    "clip_range": (0.001, {}),
    "clip_range_decay": ("linear", {"clip_range": 0.01}),
    "clip_value": (True, {"clip_range": 0.01}),
    "target_kl": (1e-6, {"learning_rate": 0.01}),
    "observation_statistics": ("steps", {"normalize_observations": True}),
    "observation_clip": (0.5, {"normalize_observations": True}),
    "normalization_prior": (0.5, {"normalize_rewards": True}),
    "rollout_steps": (4, {}),
    "minibatches": (4, {}),
}
OWN_ALTERNATIVES: dict[str, dict[str, Any]] = {  # of one algorithm
    "bc": {"train_at_episode_end": None},
    "crossq": {
        "network": ("layer_norm", {}),  # a trial ends before renormalization starts
        "critic_action_layer": (1, {"network": "layer_norm"}),
    },
    "dqfd": {"train_at_episode_end": None},
    "flashsac": {
        "num_atoms": (21, {}),
        "noise_repeats": (1, {}),
        "initializer_gain": (0.5, {"project_weights": False}),
        "initializer_final_bound": (0.003, {"project_weights": False}),
    },
    "tqc": {"num_quantiles": (24, {})},
}


SLOW = {"spaces", "recurrence", "precision"}  # minutes for all algorithms, mostly JAX's compiler


def cases() -> list[Any]:
    """Return all cases, ordered by algorithm: its checks share programs that JAX has compiled."""
    return [
        pytest.param(kind, check, id=f"{name}-{check}", marks=pytest.mark.slow if check in SLOW else ())
        for name, kind in ALGORITHMS.items()
        for check in checks()
    ]


@pytest.mark.parametrize(("kind", "check"), cases())
def test_conforms(kind: type[Algorithm], check: str):
    if check == "options":
        check_options(kind, ALTERNATIVES | OWN_ALTERNATIVES.get(kind.name(), {}))
    else:
        check_algorithm(kind, check)


def test_unknown_check_is_refused():
    with pytest.raises(UsageError, match=r"There is no check 'parities'\. There are: refusals, parity, spaces"):
        check_algorithm(DDPG, "parities")


# ---------------------------------------------------------------------------------------------------- broken algorithms
@dataclass(frozen=True)
class Unread(DDPG):
    """An option without effect."""

    temperature: float = 1.0


@dataclass(frozen=True)
class OwnChance(DDPG):
    """A loss that uses the framework's random generator."""

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        loss, info = super().critic_loss(nets, batch, noise)
        if "torch" in array_namespace(batch.reward).__name__:
            import torch

            loss = loss * (1 + torch.rand(()))
        return loss, info


COUNTS: dict[int, int] = {}


@dataclass(frozen=True)
class Remembers(DDPG):
    """State that no checkpoint contains: the number of calls of `draw`."""

    def draw(self, random: np.random.Generator, batch: Any) -> np.ndarray:
        COUNTS[id(random)] = COUNTS.get(id(random), 0) + 1
        return np.array(COUNTS[id(random)], np.float32)

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        return super().critic_loss(nets, batch._replace(reward=batch.reward * noise), noise)


@dataclass(frozen=True)
class TwoLosses(DDPG):
    """A loss that differs on JAX."""

    def actor_loss(self, nets: Any, batch: Any) -> Any:
        loss, info = super().actor_loss(nets, batch)
        return (loss if "torch" in array_namespace(batch.reward).__name__ else 1.01 * loss + 0.01), info


@dataclass(frozen=True)
class TakesAll(DDPG):
    """It accepts every space."""

    def check_spaces(self, observation: Any, action: Any, environment: str) -> None:
        return


@dataclass(frozen=True)
class TwoOptions(DDPG):
    """An option that has another effect on JAX if it is not the default."""

    scale: float = 1.0

    def critic_loss(self, nets: Any, batch: Any, noise: Any) -> Any:
        scale = self.scale if "torch" in array_namespace(batch.reward).__name__ else self.scale**2
        return super().critic_loss(nets, batch._replace(reward=batch.reward * scale), noise)


@dataclass(frozen=True)
class OnlyFour(DDPG):
    """It accepts only observations of four numbers."""

    def check_spaces(self, observation: Any, action: Any, environment: str) -> None:
        if getattr(observation, "shape", None) != (4,):
            raise UsageError(f"{self.name()} wants four numbers, {environment} has {observation}.")


@pytest.mark.parametrize(
    ("given", "sentence"), [(OnlyFour, "onlyfour cannot be checked"), (DDPG(), "Give the class of an algorithm")]
)
def test_check_refuses_unsupported_algorithms(given: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        check_algorithm(given, "acting")


@pytest.mark.parametrize(
    ("kind", "check", "sentence"),
    [
        (TwoOptions, "options", "twooptions on .* differ"),
        (Unread, "options", "unread: temperature 0.5 has no effect"),
        (OwnChance, "resuming", "ownchance: .* differs in a repeated run"),
        (OwnChance, "parity", "ownchance on .* differ"),
        (Remembers, "state", "remembers, torch: .* differs after loading a state"),
        (Remembers, "resuming", "remembers: .* differs in a (repeated|resumed) run"),
        (TwoLosses, "parity", "twolosses on .* differ"),
        (TakesAll, "refusals", "takesall fails with actions of .*, but accepts them"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_check_catches_broken_algorithms(kind: type[Algorithm], check: str, sentence: str):
    with pytest.raises(AssertionError, match=sentence):
        check_algorithm(kind, check)
