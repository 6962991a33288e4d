"""Atari saved in the middle of its games continues bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from resuming import assert_equal, check_resume, plain, record

from duetto.environments import atari_native, make

pytest.importorskip("ale_py")
BREAKOUT = "ALE/Breakout-v5"  # with sticky actions


@pytest.mark.parametrize("fire_reset", [True, "lives"])
def test_eight_games_at_different_points(fire_reset: bool | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_native, "LONGEST", 130)  # so that some games start with a new seed, and some without
    kwargs = {"episodic_life": True, "clip_rewards": True, "max_frames": 600, "fire_reset": fire_reset}
    saving, resumed = (make(BREAKOUT, num_envs=8, kwargs=kwargs) for _ in range(2))
    random = np.random.default_rng(0)
    saving.reset(3)
    for env in range(7):
        record(saving, random, 15)
        saving.reset_env(env, 100 + env)
    record(saving, random, 110)
    saving.reset_env(0, 200)  # and not a step of this one
    state, numbers = saving.state_dict(), random.bit_generator.state
    plain(state)
    assert len(set(saving._lengths.tolist())) >= 7
    told = [tape["actions"] for tape in state["environments"]["engine"].values()]
    assert 1 <= sum(bool((one == atari_native.RESET).any()) for one in told) <= 7
    expected = record(saving, random, 160)
    resumed.load_state_dict(state)
    assert resumed.resumed_exactly
    random.bit_generator.state = numbers
    assert_equal(expected, record(resumed, random, 160))
    assert sum(len(ended) for _, ended in expected) >= 8
    assert sum(int(row[6].sum()) for row, _ in expected) >= 2  # truncated


def test_a_run_that_is_never_saved_is_the_same() -> None:
    check_resume("ALE/Pong-v5", 60, kwargs={"max_frames": 200})


@pytest.mark.parametrize("spoil", ["action", "seed"])
def test_another_picture_is_no_exact_resume(spoil: str) -> None:
    saving, resumed, fresh = (make(BREAKOUT, num_envs=2) for _ in range(3))
    saving.reset(0)
    record(saving, np.random.default_rng(0), 40)
    state = saving.state_dict()
    tape: dict[str, Any] = state["environments"]["1"]
    if spoil == "action":
        tape["actions"] = np.zeros_like(tape["actions"])
    else:
        tape["origin"] += 1
    resumed.load_state_dict(state)
    fresh.load_state_dict(state | {"environments": None})
    assert resumed.restored.tolist() == [True, False]
    assert resumed.starts.tolist() == [False, True]
    assert resumed.steps == 40
    assert np.array_equal(resumed.obs[0], saving.obs[0])
    assert np.array_equal(resumed.obs[1], fresh.obs[1])
    rows = [stepper.step(np.ones(2, int))[0].next_obs for stepper in (saving, resumed, fresh)]
    assert np.array_equal(rows[1][0], rows[0][0])
    assert np.array_equal(rows[1][1], rows[2][1])
