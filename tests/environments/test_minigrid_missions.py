"""MiniGrid's missions as bags of words."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry

from duetto.environments import env_registry, minigrid_missions
from duetto.environments.minigrid_missions import PHRASES, VOCABULARY, bag, ordered
from duetto.errors import UsageError

pytest.importorskip("minigrid")


def words(code: np.ndarray) -> set[str]:
    assert code.dtype == np.uint8
    return {VOCABULARY[i] for i in np.flatnonzero(code == 1)}


def test_the_vocabulary() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 54
    assert set(minigrid_missions.CONNECTIVES) < set(VOCABULARY)


@pytest.mark.parametrize(
    ("mission", "phrases"),
    [
        ("", [""]),
        ("pick up the ball", ["pick up the ball"]),
        ("put the red ball next to the green box", ["put the red ball", "next to the green box"]),
        ("open the red door then the blue door", ["open the red door", "then the blue door"]),
        (
            "use the key to open the door and then get to the goal",
            ["use the key to open the door", "and then get to the goal"],
        ),
        (
            "get the red key from the blue room, unlock the red door and go to the goal",
            ["get the red key", "from the blue room unlock the red door", "and go to the goal"],
        ),
        (
            "put the ball on your left next to a box and go to a key, then open the door after you pick up the box",
            [
                "put the ball on your left",
                "next to a box",
                "and go to a key",
                "then open the door",
                "after you pick up the box",
            ],
        ),
    ],
)
def test_known_answers(mission: str, phrases: list[str]) -> None:
    assert words(bag(mission)) == set(mission.replace(",", "").split())
    parts = ordered(mission).reshape(PHRASES, len(VOCABULARY))
    assert [words(part) for part in parts] == [set(phrase.split()) for phrase in phrases] + [set()] * (
        PHRASES - len(phrases)
    )


def test_order_matters_only_in_order() -> None:
    one, other = (f"put the {a} ball next to the {b} ball" for a, b in (("red", "blue"), ("blue", "red")))
    assert np.array_equal(bag(one), bag(other))
    assert not np.array_equal(ordered(one), ordered(other))


@pytest.mark.parametrize("encode", [bag, ordered])
def test_unknown_words_are_named(encode: minigrid_missions.Encoder) -> None:
    with pytest.raises(
        UsageError, match=r'The mission "go to the greem ball" has the word "greem".*mean green.*mission="off"'
    ):
        encode("go to the greem ball")


def test_more_phrases_than_there_is_room_for() -> None:
    ordered("go" + " then go" * 7)
    with pytest.raises(UsageError, match=r'has 9 phrases, more than 8\. Use mission="bag" or "off"'):
        ordered("go" + " then go" * 8)


def test_nobody_can_change_what_is_remembered() -> None:
    with pytest.raises(ValueError, match="read-only"):
        bag("go to the goal")[0] = 1


def drawn(environment: str, resets: int) -> set[str]:
    """Missions of that many episodes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # older versions of some ids
        env = gymnasium.make(environment, disable_env_checker=True)
    return {env.reset(seed=seed)[0]["mission"] for seed in range(resets)}


def test_every_word_of_every_environment_is_known() -> None:
    env_registry.register("MiniGrid-Empty-5x5-v0")
    ids = [one for one in registry if one.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in one]
    assert len(ids) >= 170
    for environment in ids:
        for mission in drawn(environment, 20):
            assert words(bag(mission)) == set(mission.replace(",", "").split())
            ordered(mission)


@pytest.mark.parametrize(
    "environment",
    ["MiniGrid-PutNear-6x6-N2-v0", "MiniGrid-LockedRoom-v0", "BabyAI-GoToSeqS5R2-v0", "BabyAI-BossLevel-v0"],
)
def test_phrases_tell_all_missions_apart(environment: str) -> None:
    different = drawn(environment, 150)
    assert len({bag(mission).tobytes() for mission in different}) < len(different) >= 25
    assert len({ordered(mission).tobytes() for mission in different}) == len(different)
