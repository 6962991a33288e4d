"""Thousands of courses of events on a simulated cluster: whatever dies, the environments do what they do locally."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from taped import Forgetful, Taped, Unsavable, same, spread

from duetto import environments
from duetto.cluster import crew, host
from duetto.cluster.simulated import Rates, Simulated
from duetto.environments.faults import Fault

SCHEDULES, STEPS = 2000, 25


def play(seed: int) -> Counter[str]:
    """One course of events against the same steps in this process; what happened in it.

    At a step the run is begun anew from what was saved, on another number of actors.
    """
    random = np.random.default_rng([seed, 1])
    num_envs, cut = int(random.integers(1, 6)), int(random.integers(STEPS))
    local = environments.make(Taped, num_envs=num_envs).engine
    transport = Simulated(seed)
    happened: Counter[str] = Counter()
    engine, notices = spread(Taped, transport, num_envs, int(random.integers(1, num_envs + 1)))
    try:
        assert same(engine.reset(seed), local.reset(seed))
        for step in range(STEPS):
            if step == cut:
                saved = engine.save()
                assert saved is not None
                assert same(saved, local.save())
                engine.close()
                engine, more = spread(Taped, transport, num_envs, int(random.integers(1, num_envs + 1)))
                notices += more
                engine.reset(0)
                assert engine.load(saved)
            actions = random.integers(0, 4, num_envs)
            expected = local.step(actions)
            assert same(engine.step(actions), expected._replace(lives=expected.lives)), f"step {step}"
        assert same(engine.save(), local.save())
    except Fault as fault:
        assert fault.failed, fault
        assert "for the third time without an answer" in str(fault)
        happened["stopped"] += 1
    finally:
        engine.close()
    assert all("no number has changed" in notice for notice in notices)
    return happened + Counter(transport.mishaps) + Counter(restarted=len(notices))


def play_all(schedules: int = SCHEDULES) -> Counter[str]:
    return sum(map(play, range(schedules)), Counter())


def test_whatever_happens_every_step_is_made_once_and_in_its_order():
    happened = play_all()
    assert happened["stopped"] < SCHEDULES / 20
    assert happened["restarted"] > SCHEDULES / 2
    assert all(happened[name] > 100 for name in Rates.__dataclass_fields__), happened
