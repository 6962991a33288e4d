"""A batch that several learners have equal shares of, and what each of them must know of all of it.

    rows of the batch     0 1 2 3 | 4 5 6 7        a share each for two learners
    mean of x             mean of (mean of its share, mean of its share)

A loss that is a mean over rows needs nothing from here: the mean of the shares' gradients is the whole batch's. What it
is divided by, or standardised with, does: it is of all rows. Whoever computes a share says how numbers are added up
over all of them (`dealt`); where nobody does, a share is the whole batch. So it is in JAX, too, whose arrays are whole
wherever their rows lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class _Dealt(NamedTuple):
    number: int
    total: Callable[[Any], Any]


_dealt: ContextVar[_Dealt | None] = ContextVar("dealt", default=None)


@contextmanager
def dealt(number: int, total: Callable[[Any], Any]) -> Iterator[None]:
    """Treat batches inside as one of `number` shares; `total` sums an array over all shares, without gradients."""
    token = _dealt.set(_Dealt(number, total))
    try:
        yield
    finally:
        _dealt.reset(token)


def total(x: Any) -> Any:
    """Sum over all shares of x (...), which has no axis of rows; no gradient flows through it."""
    found = _dealt.get()
    return x if found is None else found.total(x)


def mean(x: Any) -> Any:
    """Mean over all shares of x (...), which has no axis of rows; no gradient flows through it."""
    found = _dealt.get()
    return x if found is None else found.total(x) / found.number
