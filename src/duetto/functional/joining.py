"""Two batches as one."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace


def joined(one: Any, other: Any) -> Any:
    """The rows of `one`, then those of `other`: arrays (B, ...) and (C, ...) to (B + C, ...), of every array of a tree.

    A tree is an array, or a dict or (named) tuple of trees; None stays None.
    """
    if isinstance(one, dict):
        return {name: joined(part, other[name]) for name, part in one.items()}
    if isinstance(one, tuple):
        parts = [joined(part, others) for part, others in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return None if one is None else array_namespace(one).concat([one, other], axis=0)
