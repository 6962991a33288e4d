"""A class that sets an option without declaring it would train with another value than it says."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from duetto.algorithms import ALGORITHMS, TD3, Algorithm
from duetto.algorithms.options import Fraction
from duetto.errors import UsageError


@dataclass(frozen=True)
class Untyped(TD3):
    tau = 0.05


class Undecorated(TD3):
    tau: Fraction = 0.5
    beta: float = 3.0


class Below(Untyped):
    pass


class FromNothing(Algorithm):
    tau: Fraction = 0.5


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
        (Untyped, r"Untyped sets tau, which is no option yet: write `name: type = value`"),
        (Undecorated, r"Undecorated sets tau, beta, which is no option yet: .* @dataclass\(frozen=True\)"),
        (Below, r"Untyped sets tau, which is no option"),
        (FromNothing, r"FromNothing sets tau, which is no option yet"),
    ],
)
def test_it_is_refused(kind: type[Algorithm], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        kind()


@dataclass(frozen=True)
class Fixed(TD3):
    """A class variable takes an inherited option away."""

    policy_delay: ClassVar[int] = 3  # pyright: ignore[reportIncompatibleVariableOverride]


def test_a_class_variable_is_no_option():
    assert "policy_delay" not in Fixed.options()
    assert Fixed().phase(2) == 1
    assert Fixed().phase(3) == 0
    with pytest.raises(UsageError, match="fixed has no hyper-parameter 'policy_delay'"):
        Fixed(policy_delay=2)  # pyright: ignore[reportCallIssue]


def test_what_declares_its_options():
    assert Right().tau == 0.5
    assert Plain().tau == TD3().tau
    for kind in ALGORITHMS.values():
        kind()


@dataclass(frozen=True)
class Extended(TD3):
    """A third party's algorithm that declares no groups."""

    members: int = 3


@pytest.mark.parametrize("kind", [*ALGORITHMS.values(), Extended])
def test_every_option_is_in_one_group(kind: type[Algorithm]):
    groups = kind.option_groups()
    titles = [kind.__name__, "exploration", "networks", "optimizer", "replay", "recurrence", "demonstrations"]
    assert list(groups) == [title for title in titles if title in groups]
    assert all(groups.values())
    assert sorted(name for names in groups.values() for name in names) == sorted(kind.options())


def test_undeclared_options_are_in_the_algorithms_own_group():
    assert "members" in Extended.option_groups()["Extended"]
    assert "policy_delay" in Extended.option_groups()["Extended"]


def test_options_without_effect_by_default_are_rare():
    assert {"priority_exponent", "burn_in", "ou_theta", "twin_critic"} <= TD3.rare_options()
    assert not {"prioritized", "recurrent", "exploration", "tau", "members"} & Extended.rare_options()
    assert not {"priority_exponent", "burn_in"} & ALGORITHMS["r2d2"].rare_options()
    assert "exploration_steps" in ALGORITHMS["r2d2"].rare_options()


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_what_an_option_needs_is_an_option(kind: type[Algorithm]):
    needed = {entry.needs.partition("=")[0] for entry in kind.declared_options().values() if entry.needs}
    assert needed <= set(kind.options())


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_help_shows_at_most_40_options(kind: type[Algorithm]):
    shown = [name for name in kind.options() if not name.endswith("_network") and name not in kind.rare_options()]
    assert len(shown) <= 40
