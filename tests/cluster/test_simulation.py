"""Hundreds of courses of events on a simulated cluster: whatever dies, the environments do what they do locally."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from simulated import Rates, Simulated
from taped import Forgetful, Taped, Unsavable, same, spread

from duetto import environments
from duetto.cluster.crew import Actor, Crew
from duetto.cluster.host import Host, Request
from duetto.environments import Stepper
from duetto.environments.faults import Fault
from duetto.errors import EnvironmentFailedError

STEPS = 16


def play(seed: int) -> Counter[str]:
    """One course of events against the same steps in this process; what happened in it.

    At a step the run is begun anew from what was saved, on another number of actors.
    """
    random = np.random.default_rng([seed, 1])
    num_envs, cut = int(random.integers(1, 5)), int(random.integers(STEPS))
    local = environments.make(Taped, num_envs=num_envs).engine
    transport = Simulated(seed)
    happened: Counter[str] = Counter()
    engine, notices = None, list[str]()
    try:
        engine, notices = spread(Taped, transport, num_envs, int(random.integers(1, num_envs + 1)))
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
            assert same(engine.step(actions), local.step(actions)), f"step {step}"
        assert same(engine.save(), local.save())
    except Fault as fault:
        if "for the third time without an answer" not in str(fault) and "has found no place" not in str(fault):
            raise
        happened["stopped"] += 1
    finally:
        if engine is not None:
            engine.close()
    assert all("no number has changed" in notice for notice in notices)
    return happened + Counter(transport.mishaps) + Counter(restarted=len(notices))


def play_all(schedules: int) -> Counter[str]:
    return sum(map(play, range(schedules)), Counter())


@pytest.mark.parametrize("schedules", [250, 2000])
def test_whatever_happens_every_step_is_made_once_and_in_its_order(schedules: int):
    happened = play_all(schedules)
    assert happened["stopped"] < schedules / 20
    assert happened["restarted"] > schedules / 3
    assert all(happened[name] > schedules / 100 for name in Rates.__dataclass_fields__), happened


def twice(patch: pytest.MonkeyPatch) -> None:
    """The host does again what comes twice."""
    patch.setattr(Host, "do", lambda self, number, requests, past=None: self._answer(number, requests, past))


def any_number(patch: pytest.MonkeyPatch) -> None:
    """The crew takes an old answer for the one that it waits for."""
    alike = type("Alike", (int,), {"__ne__": lambda *_: False, "__reduce__": lambda self: (int, (int(self),))})
    ask = Crew._ask

    def blind(self: Crew, actor: Actor, requests: list[Request], lost: bool = False) -> None:
        ask(self, actor, requests, lost)
        actor.number = alike(actor.number)

    patch.setattr(Crew, "_ask", blind)


def dropped(patch: pytest.MonkeyPatch) -> None:
    """Where an answer is lost, the step is asked for as if it were another one."""
    repeat = Crew._repeat

    def drop(self: Crew, actor: Actor) -> None:
        if actor.failures:
            actor.number += 1
            actor.message = (actor.number, *actor.message[1:])
        repeat(self, actor)

    patch.setattr(Crew, "_repeat", drop)


def forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was saved of an actor is not given to the next."""
    note = Crew._note

    def forget(self: Crew, actor: Actor, request: Request, value: object) -> None:
        note(self, actor, request, value)
        actor.past = [one for one in actor.past or [] if one.method != "load"]

    patch.setattr(Crew, "_note", forget)


def not_replayed(patch: pytest.MonkeyPatch) -> None:
    """The actions since then are not made again."""
    note = Crew._note

    def skip(self: Crew, actor: Actor, request: Request, value: object) -> None:
        note(self, actor, request, value)
        actor.past = [one for one in actor.past or [] if one.method != "step"]

    patch.setattr(Crew, "_note", skip)


@pytest.mark.parametrize("broken", [twice, any_number, dropped, forgotten, not_replayed])
def test_without_any_one_rule_it_shows(broken, monkeypatch: pytest.MonkeyPatch):
    broken(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):  # a host that was asked out of turn says so
        play_all(40)


@pytest.mark.parametrize("kind", [Unsavable, Forgetful])
@pytest.mark.parametrize("seed", range(30))
def test_what_cannot_be_brought_back_begins_new_episodes_and_says_so(kind, seed: int):
    engine, notices = spread(kind, Simulated(seed), num_envs=4, actors=3)
    stepper = Stepper(engine)
    stepper.reset(seed)
    lost = np.zeros(4, int)
    counts = stepper.obs[:, 1].copy()  # of the steps that each environment has made since it was seeded
    try:
        for step in range(60):
            if step % 10 == 5:
                stepper.state_dict()
            before = stepper.obs
            transition, episodes = stepper.step(stepper.sample_actions(np.random.default_rng(step)))
            assert np.array_equal(transition.obs, before[transition.env])
            assert np.array_equal(transition.next_obs[:, 1], counts[transition.env] + 1)
            assert all(episode.length <= 9 for episode in episodes)
            gone = np.zeros(4, bool) if stepper.lost is None else stepper.lost
            assert sorted([*transition.env, *np.flatnonzero(gone)]) == [0, 1, 2, 3]
            assert stepper.starts[gone].all()
            assert (stepper.obs[gone][:, 1:] == 0).all()
            lost += gone
            counts = stepper.obs[:, 1].copy()
    except EnvironmentFailedError as error:
        if "for the third time without an answer" not in str(error):
            raise
    assert any("begin new episodes" in notice for notice in notices) == bool(lost.any())
