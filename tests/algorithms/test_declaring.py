"""A class that sets an option without declaring it would train with another value than it says."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from duetto.algorithms import ALGORITHMS, TD3
from duetto.algorithms.option_bounds import Fraction
from duetto.errors import UsageError


@dataclass(frozen=True)
class Untyped(TD3):
    tau = 0.05


class Undecorated(TD3):
    tau: Fraction = 0.5
    beta: float = 3.0


class Below(Untyped):
    pass


@dataclass(frozen=True)
class Right(TD3):
    tau: Fraction = 0.5
    note: ClassVar[str] = "no option"

    def networks(self, observation: Any, action: Any) -> Any:
        return super().networks(observation, action)


class Plain(TD3):
    """Only methods, and what is none of the options."""

    note: ClassVar[str] = "no option"
    other = 3


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Untyped, r"Untyped sets tau without a type, so it changes no option: write `tau: Fraction = 0\.05`\."),
        (Undecorated, r"Undecorated has fields \(tau, beta\) but is no dataclass: put @dataclass\(frozen=True\)"),
        (Below, r"Untyped sets tau without a type"),
    ],
)
def test_it_is_refused(kind: type[TD3], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        kind()


def test_what_declares_its_options():
    assert Right().tau == 0.5
    assert Plain().tau == TD3().tau
    for kind in ALGORITHMS.values():
        kind()
