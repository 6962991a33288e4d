"""The search space: from the type, bounds and current value of a field, or from a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from duetto.algorithms import ALGORITHMS, TD3, Algorithm
from duetto.algorithms.actor_critic import ActorCritic
from duetto.algorithms.options import Count, CountOrZero, Fraction, NonNegative, Option, OptionTable, Positive
from duetto.errors import UsageError
from duetto.tools.tune.sampler import distributions
from duetto.tools.tune.space import space


@dataclass(frozen=True)
class CustomAlgorithm(ActorCritic):
    """A custom algorithm with a search range for one option."""

    members: Count = 4
    pessimism: NonNegative = 0.5
    heat: Positive = 1.0
    share: Fraction = 0.5
    forget: Fraction = 0.003
    trust: Fraction = 0.95
    whole: Fraction = 1.0
    off: NonNegative = 0.0
    many: Count = 100
    none: CountOrZero = 0
    switch: bool = False
    kind: Literal["a", "b"] = "a"
    layers: tuple[int, ...] = (30, 20)
    text: str = ""
    unbounded: float = 1.0
    rows: Count = 48

    option_table: ClassVar[OptionTable] = {
        "rows": Option(search={"factor": 2, "step": "doubling"}),
        "critic_learning_rate": Option("optimizer", search=None),
    }


BY_TYPE: dict[str, dict[str, Any] | None] = {
    "members": {"low": 1, "high": 8},
    "pessimism": {"low": 0.125, "high": 2.0, "log": True},
    "heat": {"low": 0.1, "high": 10.0, "log": True},
    "share": {"low": 0.0, "high": 1.0},
    "forget": {"low": 0.0003, "high": 0.03, "log": True},
    "trust": {"choices": [0.5, 0.85, 0.95, 0.983, 0.995]},
    "whole": None,
    "off": None,
    "many": {"low": 25, "high": 400, "log": True},
    "none": None,
    "switch": {"choices": [False, True]},
    "kind": {"choices": ["a", "b"]},
    "layers": {"choices": [[15, 10], [30, 20], [60, 40], [30, 20, 20]]},
    "text": None,
    "unbounded": None,
    "rows": {"choices": [24, 48, 96]},
    "critic_learning_rate": None,  # search=None in its class
    "replay_capacity": None,  # search=None in a base class
    "batch_size": {"choices": [64, 128, 256, 512, 1024]},
    "tau": {"low": 0.0005, "high": 0.05, "log": True},
    "actor_network": None,
}


@pytest.mark.parametrize("name", BY_TYPE)
def test_search_range_follows_from_type_and_value(name: str):
    found = space(CustomAlgorithm())
    assert (found[name].to_dict() if name in found else None) == BY_TYPE[name]


@pytest.mark.parametrize("kind", [*ALGORITHMS.values(), CustomAlgorithm])
def test_center_and_bounds_of_ranges_are_valid_options(kind: type[Algorithm]):
    center = kind()
    for field, one in space(center).items():
        for value in (*(one.choices or (one.low, one.high)), getattr(center, field)):
            if value == 0.0 and field == "entropy_coefficient":  # 0 turns it off and is in no range
                continue
            near = pytest.approx(value, rel=1e-3) if isinstance(value, float) else value
            assert one.value(one.param(value)) == near
            assert getattr(center.with_options(**{field: value}), field) == value


def test_values_have_four_digits_within_bounds():
    tau = space(TD3())["tau"]
    assert [tau.value(number) for number in (0.0123456, 0.05000001, 0.0004)] == [0.01235, 0.05, 0.0005]


def test_first_trial_is_clipped_to_the_ranges():
    searched = space(TD3(), {"tau": {"low": 0.2, "high": 0.3}, "hidden": {"choices": [[8], [16]]}}, only=True)
    assert (searched["tau"].param(0.005), searched["hidden"].param((400, 300))) == (0.2, None)  # None: drawn at random


# ---------------------------------------------------------------------------------------------------- search files
def test_search_file_overrides_types_and_skips_fixed_options():
    asked = {
        "tau": {"low": 0.001, "high": 0.1},
        "hidden": {"choices": [[64], [64, 64]]},
        "random_steps": {"low": 0, "high": 1000},
        "target_noise": {"choices": [0.1, 0.2]},
        "recurrent_size": "auto",
        "discount": None,
        "critic_learning_rate": {"factor": 2},
        "actor_learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    }
    found = space(TD3(), asked, fixed=frozenset({"policy_delay", "n_step"}))
    assert {"discount", "policy_delay", "n_step"} & set(found) == set()
    assert found["tau"].to_dict() == {"low": 0.001, "high": 0.1}
    assert found["hidden"].choices == ((64,), (64, 64))
    assert found["random_steps"].to_dict() == {"low": 0, "high": 1000}
    assert found["recurrent_size"].to_dict() == {"low": 32, "high": 512, "log": True}
    assert found["actor_learning_rate"].to_dict() == {"low": 1e-4, "high": 1e-2, "log": True}
    assert found["critic_learning_rate"].to_dict() == {"low": 0.0005, "high": 0.002, "log": True}
    assert found["target_noise"].choices == (0.1, 0.2)
    assert "exploration_noise" in found
    assert list(space(TD3(), asked, only=True)) == [name for name in TD3.options() if asked.get(name)]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"taw": {"low": 0, "high": 1}}, "td3 has no option 'taw' to search. Did you mean 'tau'"),
        ({"gamma": {"low": 0, "high": 1}}, "Did you mean 'discount'"),
        ({"tau": {"low": 0.1}}, "tau cannot be searched by {'low': 0.1}. Give low and high"),
        ({"tau": {"low": 0.0, "high": 0.01, "log": True}}, "tau cannot be searched by {"),
        ({"tau": {"low": 0.5, "high": 1.5}}, "tau is 1.5; it must be at least 0 and at most 1"),
        ({"tau": {"low": 0.1, "high": 0.5, "steps": 1}}, "Give low and high (with log), choices"),
        ({"tau": {"factor": 1}}, "tau cannot be searched by {'factor': 1}"),
        ({"critic_weight_decay": {"factor": 2}}, "critic_weight_decay is 0.0, which gives no range to search"),
        ({"batch_size": {"low": 1.5, "high": 8}}, "batch_size is 1.5; it must be a whole number"),
        ({"hidden": {"choices": [[64]]}}, "hidden cannot be searched by {"),
        ({"exploration": {"choices": ["gaussian", "pink"]}}, "exploration is 'pink'; it must be one of gaussian, ou"),
        ({"critic_weight_decay": "auto"}, "critic_weight_decay is 0.0, which gives no range to search. Give one"),
        ({"policy_delay": "auto"}, "policy_delay has a value and a search"),
    ],
)
def test_mistakes_in_search_space_are_reported(asked: dict[str, Any], sentence: str):
    with pytest.raises(UsageError) as raised:
        distributions(space(TD3(), asked, fixed=frozenset({"policy_delay"})))
    assert sentence in str(raised.value)


def test_empty_search_space_is_a_mistake():
    with pytest.raises(UsageError, match="Nothing is left to search"):
        space(TD3(), {}, only=True)


@pytest.mark.parametrize(
    ("field", "choices", "start"),
    [("tau", [1, 0.5], 1.0), ("target_noise_clip", [[-1, 1], [-2, 2]], (-1.0, 1.0)), ("discount", [0.9, 0.5], 1.0)],
)
def test_integer_choices_match_float_values(field: str, choices: Any, start: Any):
    """Optuna compares choices as text, where '1.0' is not '1'."""
    searched = space(TD3(), {field: {"choices": choices}}, only=True)[field]
    param = searched.param(start)
    assert (param is None) == (field == "discount")
    assert param is None or searched.value(param) == start
