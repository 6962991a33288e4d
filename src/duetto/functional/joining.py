"""Two batches as one."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from duetto.functional.trees import merged


def joined(one: Any, other: Any) -> Any:
    """The rows of `one`, then those of `other`: arrays (B, ...) and (C, ...) to (B + C, ...), of every array of a tree.

    A tree is an array, or a dict or (named) tuple of trees; None stays None.
    """
    return merged(lambda both: array_namespace(both[0]).concat(both, axis=0), [one, other])
