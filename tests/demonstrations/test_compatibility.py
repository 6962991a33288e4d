"""Demonstrations of another environment are refused, and both are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_cases import REAL, TORQUES, VECTOR, description, episode

from duetto import demonstrations
from duetto.demonstrations import Demonstrations, check_fits
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete


def made(tmp_path: Path, kind: str = "vector", **changes: Any) -> Demonstrations:
    demonstrations.save(tmp_path / "demos", description(kind, **changes), [episode(kind)])
    return demonstrations.load(tmp_path / "demos")


def test_the_same_environment_fits(tmp_path: Path):
    check_fits(made(tmp_path), VECTOR, Discrete(7), "Some-v0", {"speed": 2})


MISMATCHES = {
    "environment": ((VECTOR, Discrete(7), "Other-v0", {"speed": 2}), "Some-v0", "Other-v0"),
    "options": ((VECTOR, Discrete(7), "Some-v0", {"speed": 3, "size": 1}), "speed=2", "size=1, speed=3"),
    "no options": ((VECTOR, Discrete(7), "Some-v0", {}), "speed=2", "none"),
    "observations": ((REAL, Discrete(7), "Some-v0", {"speed": 2}), r"Box\(\(5,\), uint8", r"Box\(\(3,\), float32"),
    "actions": ((VECTOR, Discrete(6), "Some-v0", {"speed": 2}), r"Discrete\(7\)", r"Discrete\(6\)"),
}


@pytest.mark.parametrize(("training", "theirs", "ours"), MISMATCHES.values(), ids=MISMATCHES)
def test_a_mismatch_shows_both(tmp_path: Path, training: tuple[Any, ...], theirs: str, ours: str):
    with pytest.raises(
        UsageError, match=rf"  [a-z]+: .*{theirs}.* in the demonstrations, .*{ours}.* in training"
    ) as raised:
        check_fits(made(tmp_path), *training)
    assert str(tmp_path / "demos") in str(raised.value)


def test_bounds_of_actions_matter(tmp_path: Path):
    wider = Box((2, 2), "float32", TORQUES.low, tuple(2 * high for high in TORQUES.high))
    with pytest.raises(UsageError, match=r"to \[2.0, 4.0, 1.0, 1.0\].*to \[4.0, 8.0, 2.0, 2.0\]"):
        check_fits(made(tmp_path, "real"), REAL, wider, "Some-v0", {"speed": 2})


def test_bounds_of_observations_do_not(tmp_path: Path):
    bounded = Box((3,), "float32", (-1.0,), (1.0,))
    check_fits(made(tmp_path, "real"), bounded, TORQUES, "Some-v0", {"speed": 2})


def test_lists_and_tuples_are_the_same_option(tmp_path: Path):
    check_fits(made(tmp_path, options={"size": [1, 2]}), VECTOR, Discrete(7), "Some-v0", {"size": (1, 2)})


def test_a_default_may_be_said_or_not(tmp_path: Path):
    game, meant = "ALE/Pong-v5", {"frame_skip": 4, "sticky_actions": 0.25}
    check_fits(made(tmp_path, environment=game, options={}), VECTOR, Discrete(7), game, meant)


def test_another_option_is_refused(tmp_path: Path):
    demos = made(tmp_path, environment="ALE/Pong-v5", options={})
    said = r"(?s)learn in:\n  options: [^\n]* in the demonstrations, [^\n]*clip_rewards=True"
    with pytest.raises(UsageError, match=said):
        check_fits(demos, VECTOR, Discrete(7), "ALE/Pong-v5", {"clip_rewards": True})


def test_spaces_with_long_bounds_are_spelt_shortly():
    image = Box((84, 84, 3), "uint8", (0.0,), (255.0,))
    assert demonstrations.spell(image) == "Box((84, 84, 3), uint8, from 0 to 255)"
    assert demonstrations.spell(Box((1,), "float32", (-np.inf,), (1.0,))) == "Box((1,), float32, from -inf to 1)"
