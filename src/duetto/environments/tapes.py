"""Come back to the same state without saving it: by doing the same again.

Atari's vector environment cannot save its emulators. But from a seed on, what they do follows from what they are told;
so it is kept on a tape, one byte for each action, and played again. A game's state also depends on the games before it
(random numbers, memory that a reset leaves alone), and a seed costs as much as 400 steps. So a tape runs on over many
games, and a new seed begins a new one only where a game ends after `LONGEST` or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LONGEST = 20_000  # told, before the next game begins with a new seed: 27 s to play again 8 environments on two cores
RESET = 255  # what is told where a game begins without a new seed
SEEDS = 2**31

LEAVE, SEED, PLAIN = 0, 1, 2  # what to do with an environment before a step of a timetable


class Tape:
    """The record of what one environment was told since it last got a seed.

    Attributes:
        seed: That seed.
        told: Actions, and `RESET` where a game began without a new seed; a byte each.
    """

    seed: int
    told: bytearray

    def __init__(self, seed: int) -> None:
        self._origin, self._number = seed, 0
        self.seed, self.told = seed % SEEDS, bytearray()

    def next_game(self) -> int | None:
        """Note that another game begins; return its seed, or None if it goes on with the same random numbers."""
        if len(self.told) < LONGEST:
            self.told.append(RESET)
            return None
        self._number += 1
        self.told.clear()
        self._set_seed()
        return self.seed

    @property
    def steps(self) -> int:
        """Number of steps since the game began."""
        return len(self.told) - 1 - self.told.rfind(RESET)

    def state_dict(self) -> dict[str, Any]:
        """Return the seeds' origin and number, and the bytes."""
        return {"origin": self._origin, "number": self._number, "told": np.frombuffer(bytes(self.told), np.uint8)}

    @classmethod
    def of(cls, state: dict[str, Any]) -> Tape:
        """Make the tape that `state_dict` returned the state of."""
        tape = cls(state["origin"])
        tape._number, tape.told = state["number"], bytearray(np.asarray(state["told"], np.uint8).tobytes())
        if tape._number:
            tape._set_seed()
        return tape

    def _set_seed(self) -> None:
        self.seed = int(np.random.SeedSequence([self._origin, self._number]).generate_state(1)[0]) % SEEDS


def timetable(tapes: Sequence[Tape]) -> tuple[np.ndarray, np.ndarray]:
    """Plan how environments that step together play their tapes again, so that all come to the end at the same time.

        step            0      1      2      after the last
        environment 0   SEED a      b PLAIN c                    told a b RESET c
        environment 1        .      . SEED  d   PLAIN            told d RESET
        environment 2        .      .       .   SEED             told nothing

    Returns:
        Actions (T, N) uint8, 0 before an environment's turn; and (T + 1, N) uint8, what to do before each action and
        after the last: leave the environment alone, begin a game with the tape's seed, or one without.
    """
    told = [np.frombuffer(bytes(tape.told), np.uint8) for tape in tapes]
    steps = [int(np.count_nonzero(one != RESET)) for one in told]
    length = max(steps)
    actions = np.zeros((length, len(tapes)), np.uint8)
    begin = np.full((length + 1, len(tapes)), LEAVE, np.uint8)
    for env, (one, count) in enumerate(zip(told, steps, strict=True)):
        first = length - count
        actions[first:, env] = one[one != RESET]
        begin[first, env] = SEED
        resets = np.flatnonzero(one == RESET)
        begin[first + resets - np.arange(len(resets)), env] = PLAIN  # each is preceded by the earlier ones
    return actions, begin
