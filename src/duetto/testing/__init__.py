"""Test suites for custom parts: an algorithm, a tracker, a vector environment.

    from duetto.testing import check_algorithm
    check_algorithm(MyAlgorithm)

One pytest test for each check: `@pytest.mark.parametrize("check", checks())` and `check_algorithm(MyAlgorithm, check)`.

conformance     the checks of algorithms
seams           the checks of trackers and vector environments
trials          short runs of an algorithm on every kind of space that it supports; another value of each option
random_env      an environment with any spaces and random steps
"""

from __future__ import annotations

from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.learners import installed
from duetto.testing.conformance import BACKENDS, CHECKS
from duetto.testing.seams import check_engine, check_tracker

__all__ = ["check_algorithm", "check_engine", "check_tracker", "checks"]


def checks() -> list[str]:
    """Return the names of all checks in order; `duetto.testing.conformance` describes them."""
    return list(CHECKS)


def check_algorithm(kind: type[Algorithm], *only: str) -> None:
    """Run all checks, or those named, and raise AssertionError at the first failure.

    Both frameworks must be installed. It takes a minute or two, mostly for JAX's compiler.

    Args:
        kind: The class of an algorithm, such as `duetto.DDPG`.
        only: Names of `checks`; without any, all of them.

    Raises:
        AssertionError: A check failed.
        UsageError: `kind` is not an algorithm's class, a check does not exist, a framework is missing, or the algorithm
            supports none of the spaces of the trials.
    """
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UsageError(f"check_algorithm got {kind!r:.80}. Give the class of an algorithm, such as duetto.DDPG.")
    if not all(map(installed, BACKENDS)):
        raise UsageError(f"Checking an algorithm needs both frameworks. Install: {install('torch', 'jax')}")
    for name in only or CHECKS:
        if name not in CHECKS:
            raise UsageError(f"There is no check {name!r}. There are: {', '.join(CHECKS)}.")
        CHECKS[name](kind)
