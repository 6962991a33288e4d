"""Transitions, resets, episodes, masks, success and lives of environments, through each engine."""

from __future__ import annotations

from functools import partial
from typing import Any

import adapter
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from store import compare
from streams import Arrays, Script, series
from vector_envs import Whole

SEEN = {"size": 24, "stack": 2, "episodic_life": True}


def played(environment: Any, steps: int, **how: Any) -> Arrays:
    """Return the results of random steps; images as weighted sums, which change with any pixel."""
    transitions, after, episodes = map(list, zip(*adapter.play(environment, steps, seed=40, **how), strict=True))
    ended = [{"episodes": np.array([tuple(one) for one in ones], float).reshape(-1, 4)} for ones in episodes]
    found = {}
    for part, rows in {"made": transitions, "then": after, "ended": ended}.items():
        found |= {f"{part}/{name}": _small(array) for name, array in series(rows).items()}
    return found


def _small(array: np.ndarray) -> np.ndarray:
    if array.ndim < 4:
        return array
    flat = array.reshape(len(array), -1)
    return flat @ np.random.default_rng(0).integers(1, 2**20, flat.shape[1])


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("engine", ["sync", "subprocess", *AutoresetMode], ids=str)
def test_scripted_environment_matches_trace(engine: Any, masked: bool):
    make = partial(Script, masked=masked, numbers=not masked, echo=True)
    if isinstance(engine, AutoresetMode):
        found = played(Whole([make] * 4, autoreset_mode=engine), 300)
    else:
        found = played(make, 300, num_envs=4, vectorization=engine)
    case, lives = f"scripted{' masked' * masked}", found.pop("then/lives")
    gaps = " gaps" * (engine is AutoresetMode.NEXT_STEP)
    compare("environments", f"{case}{gaps}", found)
    # With SAME_STEP, the lives at the end of an episode are those of the next one.
    compare("environments", f"{case} lives{gaps or ' begin' * (engine is AutoresetMode.SAME_STEP)}", {"lives": lives})


@pytest.mark.parametrize("engine", ["native", "gymnasium"])
@pytest.mark.parametrize(("game", "fire"), [("Pong", True), ("Breakout", "lives")])
def test_atari_environment_matches_trace(game: str, fire: Any, engine: str):
    mode = "rgb_array" if engine == "gymnasium" else None
    found = played(f"ALE/{game}-v5", 300, num_envs=2, render_mode=mode, kwargs=SEEN | {"fire_reset": fire})
    compare("environments", f"{game} {engine}", found)
