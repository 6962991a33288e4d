"""In the mode `async`, blocks that come while others are handed out: held in layers, and opened side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_modes
from simulated import Simulated
from test_modes import NUM_ENVS, STEADY, TOTAL, Course, Unkept, nets

from duetto.cluster.asynchronous import AsyncSource
from duetto.environments import pickling

assert nets  # a fixture
LENGTH = 8


class AtOnce(Simulated):
    """Whatever is asked is there."""

    def _delay(self) -> float:
        return 0.0


def started(actors: int, transport: type[Simulated] = AtOnce) -> tuple[Course, Any]:
    course = Course(AsyncSource, "dqn", actors, LENGTH, transport(0, STEADY))
    return course, course.source


@pytest.mark.parametrize(("transport", "least"), [(AtOnce, NUM_ENVS), (Simulated, 0.9 * NUM_ENVS)])
def test_a_busy_learner_gets_the_rows_of_all_actors_at_each_step(transport: type[Simulated], least: float):
    course, _ = started(NUM_ENVS, transport)
    course.go(50 * LENGTH)
    assert np.mean([len(rows.env) for rows in course.rows]) >= least
    course.check_rows()
    course.stepper.close()


@pytest.mark.parametrize("cut", [False, True])
def test_an_actors_blocks_wait_one_behind_the_other_and_a_loss_is_between_them(
    cut: bool, monkeypatch: pytest.MonkeyPatch
):
    """Of actor 0, that is lost behind its block 1.

    handed out | blocks 0 of both: steps 0 ... 7 | blocks 1 of both: 8 ... 15 | block 2 of actor 0: 16 ...
    layer 0    |     1 of both                   |     2 of actor 0           |
    layer 1    |               2 of actor 0      |                            |
    """
    monkeypatch.setattr(test_modes, "RECIPE", pickling.pack(Unkept, {}))
    (course, source), lost = started(2), dict[int, list[int]]()
    envs: list[list[int]] = []
    for step in range(4 * LENGTH):
        if step == 2:
            assert numbers(source) == [{0: 1, 1: 1}]
            course.transport.kill(source._pool.actors[0].worker)
        if step == LENGTH:
            assert numbers(source) == [{0: 1, 1: 1}, {0: 2}]
            if cut:
                saved = source.state_dict()
                assert (saved["accepted"], saved["ready"]["counts"]) == ([3, 2], [4] * LENGTH + [2] * LENGTH)
                assert np.argwhere(saved["ready"]["lost"]).tolist() == [[LENGTH, 0], [LENGTH, 1]]
        rows, _ = source.collect(course.step, TOTAL)
        course.step += len(rows.env)
        envs.append(sorted(set(rows.env.tolist())))
        if course.stepper.aborted is not None:
            lost[step] = np.flatnonzero(course.stepper.aborted).tolist()
    assert envs[: 2 * LENGTH] == [[0, 1, 2, 3]] * 2 * LENGTH
    assert set(envs[2 * LENGTH]) >= {0, 1}
    assert lost == {2 * LENGTH: [0, 1]}
    course.stepper.close()


def numbers(source: Any) -> list[dict[int, int]]:
    """Of the blocks in each layer, by actors."""
    layers = [{} for _ in range(max(map(len, source._held)))]
    for index, held in enumerate(source._held):
        for layer, (block, _) in zip(layers, held, strict=False):
            layer[index] = block.number
    return layers


@pytest.mark.parametrize("actors", [2, 3])
def test_what_is_held_is_in_a_cut(actors: int):
    """No row is lost or comes twice where it continues; and credit knows of them."""
    course, source = started(2)
    course.go(LENGTH - 1)
    assert numbers(source) == [{0: 1, 1: 1}, {0: 2}]
    waiting = source._rows
    course.move(AsyncSource, actors, LENGTH, AtOnce(1, STEADY))
    moved: Any = course.source
    assert moved._rows == waiting == sum(len(ready.experience.env) for ready in moved._ready)
    course.go(4 * LENGTH)
    course.check_rows()
    course.stepper.close()
