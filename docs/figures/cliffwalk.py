"""Updates until a value has propagated back along a chain, with uniform and with prioritized sampling.

    python docs/figures/cliffwalk.py        # about a minute; writes data/cliffwalk.csv

The "blind cliffwalk" (Schaul et al., 2016, arXiv:1511.05952, figure 1): n states in a row and two actions. The
wrong action ends the episode with reward 0; only n right actions in a row give reward 1. The buffer contains every
possible episode: 2ⁿ⁺¹ - 2 transitions, and only one has a reward.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from duetto.algorithms.base import Prioritization
from duetto.buffers.sampling import MassItems, ReplaySampler

DATA = Path(__file__).parent / "data" / "cliffwalk.csv"
FIELDS = ("length", "transitions", "draws", "seed", "updates")
LENGTHS, SEEDS, RATE, CLOSE = range(2, 11), 10, 0.25, 1e-3
KINDS = ("uniform", "priorities")


def transitions(length: int) -> np.ndarray:
    """State and action (0: right, 1: wrong) of all steps of all episodes, (2ⁿ⁺¹ - 2, 2)."""
    found = []
    for state in range(length):
        copies = 2 ** (length - state - 1)  # episodes with the same steps up to here
        found += [(state, 0)] * copies + [(state, 1)] * copies
    return np.array(found)


def truth(length: int) -> np.ndarray:
    """Return the values (n, 2): γ to the power of the remaining right steps; 0 for wrong actions."""
    return np.stack([discount(length) ** np.arange(length - 1, -1, -1), np.zeros(length)], axis=1)


def discount(length: int) -> float:
    """γ = 1 - 1/n, as in the paper."""
    return 1.0 - 1.0 / length


def updates(length: int, kind: str, seed: int) -> int:
    """Return the updates until the mean squared error of a table of values, initially 0, is below 0.001."""
    random, steps, wanted = np.random.default_rng(seed), transitions(length), truth(length)
    q, gamma = np.zeros((length + 1, 2)), discount(length)
    priorities = Prioritization(exponent=0.6, importance_exponent=0.0, importance_anneal_samples=0, epsilon=1e-5)
    sampler, items = ReplaySampler(None if kind == "uniform" else priorities), MassItems(len(steps))
    items.add(np.arange(len(steps)), sampler.mass(np.ones(len(steps))))
    made = 0
    while ((q[:length] - wanted) ** 2).mean() > CLOSE:
        index = items.find(sampler.draw(items.line, 1, random))
        state, action = steps[index[0]]
        target = 0.0
        if action == 0:
            target = 1.0 if state == length - 1 else gamma * q[state + 1].max()
        error = target - q[state, action]
        q[state, action] += RATE * error
        items.set(index, sampler.mass(np.array([abs(error)])))
        made += 1
    return made


if __name__ == "__main__":
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for length in LENGTHS:
            for kind in KINDS:
                for seed in range(SEEDS):
                    made = updates(length, kind, seed)
                    writer.writerow(
                        dict(zip(FIELDS, (length, len(transitions(length)), kind, seed, made), strict=True))
                    )
            file.flush()
