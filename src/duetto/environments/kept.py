"""Values kept for objects by their identity: equal objects are told apart, and objects without a hash are fine."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import ref

Known = TypeVar("Known")


class Kept(Generic[Known]):
    """A value for each of some objects, for as long as these live."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[ref[Any], Known]] = {}

    def get(self, owner: Any) -> Known | None:
        """Return the value kept for `owner`; None where there is none."""
        found = self._values.get(id(owner))
        return None if found is None or found[0]() is not owner else found[1]

    def set(self, owner: Any, value: Known) -> None:
        """Keep a value for `owner`, in the place of an earlier one."""
        key = id(owner)
        self._values[key] = ref(owner, lambda gone: self._forget(key, gone)), value

    def forget(self, owner: Any) -> None:
        """Drop the value kept for `owner`, if there is one."""
        self._values.pop(id(owner), None)

    def _forget(self, key: int, gone: ref[Any]) -> None:
        if key in self._values and self._values[key][0] is gone:
            del self._values[key]
