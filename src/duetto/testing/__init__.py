"""Test suites for custom parts: an algorithm, a tracker, a vector environment.

    from duetto.testing import check_algorithm
    check_algorithm(MyAlgorithm)

For one pytest test per check: `@pytest.mark.parametrize("check", checks())` and `check_algorithm(MyAlgorithm, check)`.

conformance            the checks of algorithms
trackers_and_engines   the checks of trackers and vector environments
trials                 short runs of an algorithm on the spaces that it supports, and with changed options
random_env             an environment with any spaces and random steps

Replay buffers and learners cannot be replaced by custom parts, so there are no checks of them.
"""

from __future__ import annotations

from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.learners import installed
from duetto.testing.conformance import BACKENDS, CHECKS
from duetto.testing.trackers_and_engines import check_engine, check_tracker

__all__ = ["check_algorithm", "check_engine", "check_tracker", "checks"]


def checks() -> list[str]:
    """Return the names of all checks in order (`duetto.testing.conformance` describes each)."""
    return list(CHECKS)


def check_algorithm(kind: type[Algorithm], *only: str) -> None:
    """Run all checks of an algorithm, or the checks `only`, until one fails.

    PyTorch and JAX must both be installed. All checks take a minute or two, mostly for JAX's compiler.

    Args:
        kind: The class of an algorithm, such as `duetto.DDPG`.
        only: Names of checks, from `checks()`; all checks if empty.

    Raises:
        AssertionError: A check failed.
        UsageError: `kind` is not an algorithm's class, a check does not exist, a framework is missing, or the algorithm
            supports none of the spaces that the checks try.
    """
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UsageError(f"check_algorithm got {kind!r:.80}. Give the class of an algorithm, such as duetto.DDPG.")
    if not all(map(installed, BACKENDS)):
        raise UsageError(f"Checking an algorithm needs both frameworks. Install: {install('torch', 'jax')}")
    for name in only or CHECKS:
        if name not in CHECKS:
            raise UsageError(f"There is no check {name!r}. There are: {', '.join(CHECKS)}.")
        CHECKS[name](kind)
