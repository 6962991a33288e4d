"""Which of XLA's libraries makes an update's products on a processor.

XLA hands them to YNNPACK by default, and to Eigen where that is turned off. Neither is faster everywhere. On an Intel
Xeon (AVX-512) updates of TD3, DDPG, SAC and CrossQ were 1.0 to 1.2 times as fast with Eigen where batches had 256 rows
and layers up to 400 units, 1.15 to 1.45 times with 1,024 rows; with 512 units 0.93 to 1.1, with 1,024 units 0.75 times,
with 64 rows 1.0; DQN's with 256 units 0.94 to 1.06, with 512 units 0.87 (benchmarks/log.md). So what decides is the
work, never the machine: a run is the same run wherever it begins, as far as its processor lets it. Whoever names
YNNPACK's fusions in `XLA_FLAGS` has their own way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

import jax
import jax.numpy as jnp

ROWS, UNITS = 128, 512
EIGEN: dict[str, str | int | bool | float] = {"xla_cpu_experimental_ynn_fusion_type": ""}


def by_eigen(rows: int, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether Eigen makes the products of so many rows and parameters of these shapes (..., out, in)."""
    return rows >= ROWS and all(size < UNITS for shape in shapes for size in shape[-2:])


@cache
def known() -> bool:
    """Whether this XLA has the choice, and `XLA_FLAGS` leaves it to us."""
    if any(option in os.environ.get("XLA_FLAGS", "") for option in EIGEN):
        return False
    try:
        jax.jit(lambda x: x + 1, compiler_options=EIGEN).lower(jnp.zeros(())).compile()
    except Exception:  # whatever a JAX that does not know it raises
        return False
    return True
