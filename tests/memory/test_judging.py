"""First priorities from what the actor knew, by hand: three and four steps, γ = 0.9, rewards 1, 2, 3 (and 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import memory_cases
import numpy as np
import pytest
import sequence_cases
from memory_cases import PROPORTIONAL, masses

from duetto.algorithms import DQN, R2D2, DQfD
from duetto.algorithms.base import Q_BEST, Q_TAKEN, Prospect
from duetto.errors import CheckpointError
from duetto.memory import Experience

PLAIN = replace(PROPORTIONAL, exponent=1.0, epsilon=1e-12)
TAKEN, BEST = [1.0, 2.0, 2.5, 3.0], [4.0, 5.0, 6.0, 7.0]
LARGEST = 1.0


def judged(algorithm: Any = None) -> Any:
    return replace(PLAIN, initial=(algorithm or DQN(prioritized=True, initial_priority="actor")).initial_error)


def knowing(experience: Experience, step: int) -> Experience:
    count = len(experience.env)
    values = {Q_TAKEN: TAKEN[step], Q_BEST: BEST[step]}
    return experience._replace(extras={name: np.full(count, value, np.float32) for name, value in values.items()})


def step(number: int, end: str = "", env: int | list[int] = 0, t: int | None = None) -> Experience:
    t = number if t is None else t
    flags = {"terminated": end == "terminated", "truncated": end == "truncated"}
    return knowing(memory_cases.rows(env, number, reward=t + 1.0, **flags), t)


def replay(n_step: int = 2, **changes: Any) -> Any:
    return memory_cases.build(batch_size=64, n_step=n_step, prioritization=judged(), **changes)


def test_an_item_is_judged_when_its_window_is_whole():
    """|1 - (1 + .9·2 + .81·6)| = 6.66 when step 2 is chosen; then the episode terminates: |2 - (2 + .9·3)| = 2.7 and
    |2.5 - 3| = 0.5, by rewards alone.
    """
    memory = replay()
    memory.add(step(0))
    memory.add(step(1))
    assert masses(memory)[:2].tolist() == [LARGEST, LARGEST]
    memory.add(step(2, "terminated"))
    np.testing.assert_allclose(masses(memory)[:3], [6.66, 2.7, 0.5], rtol=1e-6)
    memory.add(step(3, t=0))
    assert masses(memory)[3] == pytest.approx(6.66)  # the largest so far, theirs among them


def test_what_an_episode_was_cut_at_has_no_value():
    memory = replay()
    for number in range(3):
        memory.add(step(number, "truncated" if number == 2 else ""))
    np.testing.assert_allclose(masses(memory)[:3], [6.66, LARGEST, LARGEST], rtol=1e-6)
    memory.add(step(3, t=0))  # another episode's first value is none of theirs
    memory.add(step(4, t=1))
    np.testing.assert_allclose(masses(memory)[:3], [6.66, LARGEST, LARGEST], rtol=1e-6)


def test_nor_what_it_broke_off_at():
    memory = replay()
    memory.add(step(0))
    memory.add(step(1))
    memory.interrupt()
    for number in range(2, 5):
        memory.add(step(number, t=number - 2))
    np.testing.assert_allclose(masses(memory)[:5], [LARGEST, LARGEST, 6.66, LARGEST, LARGEST], rtol=1e-6)


def test_one_step_looks_ahead_to_the_next():
    """|1 - (1 + .9·5)| = 4.5, |2 - (2 + .9·6)| = 5.4, |2.5 - 3| = .5; bootstrapping ignores that it terminated."""
    memory = replay(n_step=1)
    for number in range(3):
        memory.add(step(number, "terminated" if number == 2 else ""))
    np.testing.assert_allclose(masses(memory)[:3], [4.5, 5.4, 0.5], rtol=1e-6)
    memory = replay(n_step=1, ignore_termination=True)
    for number in range(3):
        memory.add(step(number, "terminated" if number == 2 else ""))
    np.testing.assert_allclose(masses(memory)[:2], [4.5, 5.4], rtol=1e-6)
    assert masses(memory)[2] == pytest.approx(4.5)  # the largest when it entered: what it was cut at has no value


def test_actions_that_nobody_was_asked_for_leave_their_items_as_they_are():
    """Item 0 was random, and item 1 is followed by the value of step 3."""
    memory = replay()
    memory.add(step(0)._replace(extras={}))
    for number in (1, 2, 3):
        memory.add(step(number))
    np.testing.assert_allclose(masses(memory)[:2], [LARGEST, abs(2 - (2 + 0.9 * 3 + 0.81 * 7))], rtol=1e-6)


def test_the_learner_knows_better():
    memory = replay()
    memory.add(step(0))
    sample = memory.sample()
    memory.feedback(sample, np.full(64, 0.25))
    for number in (1, 2, 3):
        memory.add(step(number))
    np.testing.assert_allclose(masses(memory)[:2], [0.25, abs(2 - (2 + 0.9 * 3 + 0.81 * 7))], rtol=1e-6)


def test_many_steps_at_once_are_as_many_in_turn():
    """Two environments, one of which ends and goes round its ring of 4 rows."""
    one, other = replay(num_envs=2, capacity=8), replay(num_envs=2, capacity=8)
    steps = [step(number, "terminated" if number % 3 == 2 else "", [0, 1], number % 3) for number in range(7)]
    for each in steps:
        one.add(each)
    other.add(sequence_cases.joined(steps))
    np.testing.assert_allclose(masses(one), [2.7, 0.5, 6.66, 6.66] * 2, rtol=1e-6)  # numbers 4, 5, 6 and 3
    np.testing.assert_allclose(masses(other), [2.7, 0.5, LARGEST, 6.66] * 2, rtol=1e-6)  # 6 came before any was judged


def test_dqfd_adds_the_single_steps_error():
    """λₙ 1, λ₁ 0.5: 6.66 + 0.5 · |1 - (1 + .9·5)|; the last steps 2.7 + .5 · 5.4 and .5 + .5 · .5."""
    algorithm = DQfD(initial_priority="actor", one_step_weight=0.5)
    memory = memory_cases.build(batch_size=64, n_step=2, prioritization=judged(algorithm), one_step=True)
    for number in range(3):
        memory.add(step(number, "terminated" if number == 2 else ""))
    np.testing.assert_allclose(masses(memory)[:3], [8.91, 5.4, 0.75], rtol=1e-6)


def test_the_scale_of_r2d2():
    """h⁻¹(2) = 7.9523 for ε .001, so y = h(5.23 + .729 · 7.9523) = 2.47906 as in its update; Q is 1."""
    algorithm = R2D2(initial_priority="actor")
    prospect = Prospect(np.array([5.23]), np.array([0.729]), np.array([2.0]))
    assert algorithm.initial_error(np.array([1.0]), prospect, None)[0] == pytest.approx(1.47906165)


# ---------------------------------------------------------------------------------------------------- sequences
SHORT = {"burn_in": 0, "unroll": 3, "overlap": 0, "n_step": 2}


def sequences(**changes: Any) -> tuple[sequence_cases.World, Any]:
    world = sequence_cases.World()
    options: dict[str, Any] = SHORT | {"prioritization": judged(), "batch_size": 400} | changes
    return world, sequence_cases.build(observation=world.space, action=world.action, **options)


def act(world: sequence_cases.World, memory: Any, t: int, end: str = "") -> None:
    memory.add(knowing(world.step(0, end)._replace(reward=np.array([t + 1.0], np.float32)), t))


def of_sequences(memory: Any) -> list[float]:
    return memory.state_dict()["draws"]["mass"].tolist()


def test_a_sequence_waits_for_the_value_behind_it():
    """δ = 1 - (1 + .9·2 + .81·6) = -6.66, 2 - (2 + .9·3 + .81·7) = -8.37; the last step looks one ahead, at the
    sequence's end: 2.5 - (3 + .9·7) = -6.8. Then .9 · 8.37 + .1 · 21.83 / 3.
    """
    world, memory = sequences()
    for t in range(3):
        act(world, memory, t)
    assert of_sequences(memory) == [LARGEST]
    act(world, memory, 3, "terminated")  # and the one that it ends with, |3 - 4|, is judged at once
    np.testing.assert_allclose(of_sequences(memory), [0.9 * 8.37 + 0.1 * 21.83 / 3, 1.0], rtol=1e-6)


def test_of_burn_in_nothing_counts():
    """Burn-in 1: steps 1 and 2 alone, .9 · 8.37 + .1 · (8.37 + 6.8) / 2."""
    world, memory = sequences(burn_in=1, unroll=2, learn_from_start=False, overlap=1)
    for t in range(4):
        act(world, memory, t)
    np.testing.assert_allclose(of_sequences(memory)[0], 0.9 * 8.37 + 0.1 * 15.17 / 2, rtol=1e-6)


@pytest.mark.parametrize("end", ["truncated", "broken"])
def test_a_sequence_that_was_cut_keeps_the_largest(end: str):
    """After an episode with values that are none of its own."""
    world, memory = sequences()
    for t in range(4):
        act(world, memory, t, "terminated" if t == 3 else "")
    largest = memory.draws.largest
    for t in range(3):
        act(world, memory, t, end if t == 2 and end == "truncated" else "")
    if end == "broken":
        memory.interrupt()
        world.interrupt()
    act(world, memory, 0)
    act(world, memory, 1)
    assert of_sequences(memory)[2:] == [largest]


def test_the_learner_knows_sequences_better():
    world, memory = sequences()
    for t in range(3):
        act(world, memory, t)
    memory.feedback(memory.sample(), np.full((400, 3), 0.25))
    act(world, memory, 3)
    assert of_sequences(memory) == [0.25 + 1e-12]


# ---------------------------------------------------------------------------------------------------- checkpoints
@pytest.mark.parametrize("kind", ["steps", "sequences"])
def test_a_checkpoint_holds_what_is_not_judged_yet(kind: str):
    """One without, of a time before this was asked for, leaves the items as they are; what is no such is refused."""
    made, world = (replay(), None) if kind == "steps" else reversed(sequences())
    other, blank = (replay(), replay()) if kind == "steps" else (sequences()[1], sequences()[1])

    def go(memory: Any, t: int) -> None:
        memory.add(step(t) if world is None else experiences[t])

    experiences = [] if world is None else [knowing(world.step(0), t) for t in range(4)]
    before = 2 if kind == "steps" else 3
    for t in range(before):
        go(made, t)
    state = made.state_dict()
    for memory, saved in ((other, state), (blank, {key: part for key, part in state.items() if key != "judged"})):
        memory.load_state_dict(saved)
        memory.load_segment(made.segment(np.zeros(1, np.int64)))
    for memory in (made, other, blank):
        go(memory, before)
    found = [masses(m)[0] if kind == "steps" else of_sequences(m)[0] for m in (made, other, blank)]
    assert found[0] == found[1] > 6
    assert found[2] == LARGEST
    for waiting in [[0] * 7, [-1], [3]][: 3 if kind == "steps" else 1]:
        with pytest.raises(CheckpointError):
            other.load_state_dict(state | {"judged": state["judged"] | {"waiting": np.array(waiting)}})
    other.load_state_dict(made.emptied(state))
    assert other.state_dict()["judged"]["waiting"].tolist() == ([0] if kind == "steps" else [-1])
