"""Playing tapes again: every environment ends where it was, and all of them at the same time."""

from __future__ import annotations

import numpy as np
import pytest

from duetto.environments import atari_native
from duetto.environments.atari_native import RESET, Tape, timetable

BEGIN = {"S": atari_native.SEED, "P": atari_native.PLAIN, ".": atari_native.LEAVE}
R = RESET


def tape(*told: int) -> Tape:
    one = Tape(0)
    one.told.extend(told)
    return one


@pytest.mark.parametrize(
    ("told", "actions", "begin"),  # one row for each environment; `begin` has one column more than there are actions
    [
        ([(5, 6, R, 7), (8, R), ()], ["567", "008", "000"], ["S.P.", "..SP", "...S"]),
        ([(5,)], ["5"], ["S."]),
        ([(), ()], ["", ""], ["S", "S"]),
        ([(1, R, 2, R, 3, 4, R)], ["1234"], ["SPP.P"]),
    ],
)
def test_timetables(told: list[tuple[int, ...]], actions: list[str], begin: list[str]) -> None:
    played, begun = timetable([tape(*one) for one in told])
    assert played.T.tolist() == [[int(action) for action in row] for row in actions]
    assert begun.T.tolist() == [[BEGIN[sign] for sign in row] for row in begin]


def test_long_tapes_begin_anew_with_a_seed_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_native, "LONGEST", 4)
    one, twin = Tape(7), Tape(7)
    seeds = []
    for _ in range(5):
        for current in (one, twin):
            current.told.extend([1, 2])
        assert one.steps == 2
        seeds.append(one.next_game())
        assert seeds[-1] == twin.next_game()
        assert one.steps == 0
    # told 1 2 R 1 2: five, so the second game's end starts a new tape; the same for the fourth
    assert [seed is None for seed in seeds] == [True, False, True, False, True]
    assert one.told == bytes([1, 2, R])
    assert one.seed == seeds[3]
    assert len({7, seeds[1], seeds[3]}) == 3
    assert Tape(8).seed == 8


def test_tapes_come_back() -> None:
    one = tape(3, R, 4, 5)
    one._number = 2
    one._set_seed()
    again = Tape.of(one.state_dict())
    assert (again.seed, again.told, again.steps) == (one.seed, one.told, 2)
    assert again.state_dict()["told"].dtype == np.uint8
    assert Tape.of(Tape(2**31 + 5).state_dict()).seed == 5  # C++ takes 31 bits
