"""Find where the sequences of an episode start and end, while the episode runs.

They start at the steps 0, p, 2p, ... with p = L - overlap, and have L steps; only the last one may have fewer. Beyond
the first, one is made only if it adds a step that the one before does not have. None runs across an episode's end.

    L 8, overlap 4                  L 4, overlap 3                  L 6, overlap 0
    T = 3     aaa                   T = 2     aa                    T = 5     aaaaa
    T = 8     aaaaaaaa              T = 4     aaaa                  T = 6     aaaaaa
    T = 9     aaaaaaaa              T = 6     aaaa                  T = 7     aaaaaa
                  bbbbb                        bbbb                                 b
    T = 13    aaaaaaaa                          cccc                T = 13    aaaaaa
                  bbbbbbbb                                                          bbbbbb
                      ccccc                                                               c

A sequence of L steps is complete with its last step, a shorter one when the episode ends:

    L 4, overlap 2      step          1  2  3  4  5  6  7 (the last)
                        complete      .  .  .  a  .  b  c
"""

from __future__ import annotations

import numpy as np


def cut(steps: np.ndarray, done: np.ndarray, length: int, overlap: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find which of N episodes complete a sequence with their newest step; none can complete two at once.

    Args:
        steps: (N,) int, steps of each episode up to and including the newest.
        done: (N,) bool, the newest step is its last.
        length: L.
        overlap: steps that a sequence shares with the next, in 0 .. L-1.

    Returns:
        (N,) bool; and (N,) int, where the next sequence starts and how many steps of it there are (less than 1 if it
        starts later).
    """
    period = length - overlap
    made = np.maximum((steps - 1 - overlap) // period, 0)  # complete before the newest step
    start = made * period
    real = steps - start
    last = done & ((made == 0) | (real > overlap))
    return (real == length) | last, start, real
