"""A recurrent network as losses and policies call it: like any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from duetto.functional.trees import mapped
from duetto.networks import masks
from duetto.networks.windows import Window

Array = Any


class Unrolling:
    """A recurrent network that runs over each window once, however often it is asked about some of its positions.

    A loss asks the online network twice (what was done, what would be best next), for two `at` of the same window. Make
    a new one for each evaluation of a loss.

    Attributes:
        carry: The network's state behind the last window, by name.
    """

    def __init__(self, network: Any, name: str, members: int = 0) -> None:
        """`name` is the one under which windows hold its carry; a target network starts from its source's.

        `members` of an ensemble are the first axis of its outputs, before (B, ...).
        """
        self._network, self._prefix, self._members = network, f"{name}/", members
        self._seen: list[_Run] = []
        self.carry: dict[str, Array] = {}

    def __call__(self, window: Window, *inputs: Any, train: bool = False) -> Any:
        """The network's outputs at the window's positions, all of which are rows to batch normalisation."""
        run, mask = self._run(window), masks.of(window.obs)
        if inputs or train or self._members or isinstance(run.features, tuple):  # of the positions asked for alone
            found = self._network.head(_at(run.features, window.at), *inputs, train=train)
            return found if mask is None else masks.masked(self._network.spec, found, _at(mask, window.at))
        if run.outputs is None:
            found = self._network.head(run.features)
            run.outputs = found if mask is None else masks.masked(self._network.spec, found, mask)
        return _at(run.outputs, window.at)

    @property
    def moved(self) -> dict[str, Array]:
        """See `network.Network`."""
        return self._network.moved

    def first(self, window: Window, *inputs: Any) -> Array:
        """The outputs of an ensemble's first member."""
        return self._network.first_head(_at(self._run(window).features, window.at), *inputs)

    def _run(self, window: Window) -> _Run:
        """The pass over a window, made once: the same stretch with other positions shares its arrays."""
        run = next((run for run in self._seen if run.of.previous_reward is window.previous_reward), None)
        if run is None:
            run = _Run(window, *self._network.trunk(window.within(self._prefix)))
            self._seen.append(run)
        self.carry = {f"{self._prefix}{key}": part for key, part in run.carry.items()}
        return run


@dataclass
class _Run:
    """One pass of a network over a window. The window is kept, so no other can be taken for it."""

    of: Window
    features: Any
    carry: dict[str, Array]
    outputs: Any = None  # the head's, of all positions, once they were asked for


def _at(tree: Any, at: Array | None) -> Any:
    """(B, S, ...) at positions (B, T): (B, T, ...), of every array; without positions, S = 1 and time has no axis."""

    def chosen(array: Array) -> Array:
        if at is None:
            return array[:, 0]
        return array_namespace(array).take_along_axis(array, at if array.ndim == 2 else at[..., None], axis=1)

    return mapped(chosen, tree)
