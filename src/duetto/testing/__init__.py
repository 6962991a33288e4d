"""A test suite for algorithms: what the library expects of one. All of Duetto's own pass it; use it for yours, too.

    from duetto.testing import check_algorithm
    check_algorithm(MyAlgorithm)

In pytest, a test for each: `@pytest.mark.parametrize("check", checks())` and `check_algorithm(MyAlgorithm, check)`.
"""

from __future__ import annotations

from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.extras import install

__all__ = ["check_algorithm", "checks"]


def checks() -> list[str]:
    """The names of all checks, in order; `duetto.testing.conformance` says what each looks at."""
    from duetto.testing.conformance import CHECKS

    return list(CHECKS)


def check_algorithm(kind: type[Algorithm], *only: str) -> None:
    """Run all checks, or those named, and raise AssertionError at the first that does not hold.

    Both frameworks must be installed. It takes a minute or two, most of it JAX's compiler.

    Args:
        kind: The class of an algorithm, such as `duetto.DDPG`.
        only: Names of `checks`; without any, all of them in order.

    Raises:
        AssertionError: Something does not hold.
        UsageError: `kind` is no algorithm's class, a check does not exist, a framework is missing, or the algorithm
            takes none of the spaces that it is tried on.
    """
    from duetto.testing.conformance import CHECKS, both_installed

    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise UsageError(
            f"check_algorithm takes the class of an algorithm, such as duetto.DDPG; it was given {kind!r:.80}."
        )
    if not both_installed():
        raise UsageError(f"Checking an algorithm needs both frameworks. Install: {install('torch', 'jax')}")
    for name in only or CHECKS:
        if name not in CHECKS:
            raise UsageError(f"There is no check {name!r}. There are: {', '.join(CHECKS)}.")
        CHECKS[name](kind)
