"""Demonstrations of another environment are refused; the error shows both environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from demo_cases import REAL, TORQUES, VECTOR, description, episode

from duetto import demonstrations
from duetto.demonstrations import Demonstrations, check_fits
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete


def save_and_load(tmp_path: Path, kind: str = "vector", **changes: Any) -> Demonstrations:
    demonstrations.save(tmp_path / "demos", description(kind, **changes), [episode(kind)])
    return demonstrations.load(tmp_path / "demos")


def test_demonstrations_of_the_same_environment_fit(tmp_path: Path):
    check_fits(save_and_load(tmp_path), VECTOR, Discrete(7), "Some-v0", {"speed": 2})


MISMATCHES = {
    "environment": ((VECTOR, Discrete(7), "Other-v0", {"speed": 2}), "Some-v0", "Other-v0"),
    "options": ((VECTOR, Discrete(7), "Some-v0", {"speed": 3, "size": 1}), "speed=2", "size=1, speed=3"),
    "no options": ((VECTOR, Discrete(7), "Some-v0", {}), "speed=2", "none"),
    "observations": ((REAL, Discrete(7), "Some-v0", {"speed": 2}), r"Box\(\(5,\), uint8", r"Box\(\(3,\), float32"),
    "actions": ((VECTOR, Discrete(6), "Some-v0", {"speed": 2}), r"Discrete\(7\)", r"Discrete\(6\)"),
}


@pytest.mark.parametrize(("training", "theirs", "ours"), MISMATCHES.values(), ids=MISMATCHES)
def test_mismatch_error_shows_both_values(tmp_path: Path, training: tuple[Any, ...], theirs: str, ours: str):
    with pytest.raises(
        UsageError, match=rf"  [a-z]+: .*{theirs}.* in the demonstrations, .*{ours}.* in training"
    ) as raised:
        check_fits(save_and_load(tmp_path), *training)
    assert str(tmp_path / "demos") in str(raised.value)


def test_other_action_bounds_are_refused(tmp_path: Path):
    wider = Box((2, 2), "float32", TORQUES.low, tuple(2 * high for high in TORQUES.high))
    with pytest.raises(UsageError, match=r"to \[2.0, 4.0, 1.0, 1.0\].*to \[4.0, 8.0, 2.0, 2.0\]"):
        check_fits(save_and_load(tmp_path, "real"), REAL, wider, "Some-v0", {"speed": 2})


def test_other_observation_bounds_are_accepted(tmp_path: Path):
    bounded = Box((3,), "float32", (-1.0,), (1.0,))
    check_fits(save_and_load(tmp_path, "real"), bounded, TORQUES, "Some-v0", {"speed": 2})


def test_explicit_default_options_are_accepted(tmp_path: Path):
    game, meant = "ALE/Pong-v5", {"frame_skip": 4, "sticky_actions": 0.25}
    check_fits(save_and_load(tmp_path, environment=game, options={}), VECTOR, Discrete(7), game, meant)


def test_additional_environment_option_is_refused(tmp_path: Path):
    demos = save_and_load(tmp_path, environment="ALE/Pong-v5", options={})
    said = r"(?s)training environment:\n  options: [^\n]* in the demonstrations, [^\n]*clip_rewards=True"
    with pytest.raises(UsageError, match=said):
        check_fits(demos, VECTOR, Discrete(7), "ALE/Pong-v5", {"clip_rewards": True})
