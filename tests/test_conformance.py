"""Every built-in algorithm passes `check_algorithm`, and the checks find broken algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from array_api_compat import array_namespace

from duetto.algorithms import ALGORITHMS, DDPG, Algorithm
from duetto.errors import UsageError
from duetto.testing import check_algorithm, checks

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
    check_algorithm(kind, check)


def test_unknown_check_is_refused():
    with pytest.raises(UsageError, match=r"There is no check 'parities'\. There are: refusals, parity, spaces"):
        check_algorithm(DDPG, "parities")


# ---------------------------------------------------------------------------------------------------- broken algorithms
@dataclass(frozen=True)
class Unread(DDPG):
    """An option without effect."""

    temperature: float = 1.0
    alternatives: ClassVar[dict[str, Any]] = dict.fromkeys(DDPG.options())  # check only its own option


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
    alternatives: ClassVar[dict[str, Any]] = dict.fromkeys(DDPG.options())

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
