"""A recurrent network that losses and policies call like a feedforward one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from duetto.functional.pytree import tree_map
from duetto.networks import masks
from duetto.networks.sequence_input import SequenceInput

Array = Any


class RecurrentUnroll:
    """A recurrent network that runs over each window once, however many positions of it are queried.

    A loss queries the online network twice, for the actions taken and for the best next ones: two `query_steps` of the
    same window. Make a new one for each evaluation of a loss.

    Attributes:
        carry: The network's hidden states after the last window, by name.
    """

    def __init__(self, network: Any, name: str, members: int = 0) -> None:
        """`name` is the key of its hidden states in windows: a target network has its source's.

        `members` is the size of an ensemble, the first axis of its outputs, before (B, ...).
        """
        self._network, self._prefix, self._members = network, f"{name}/", members
        self._seen: list[_Run] = []
        self.carry: dict[str, Array] = {}

    def __call__(self, window: SequenceInput, *inputs: Any, train: bool = False) -> Any:
        """Return the outputs at the window's positions, each a row for batch normalization."""
        run, mask = self._run(window), masks.mask_of(window.obs)
        if inputs or train or self._members or len(run.features) > 1:  # of the positions asked for alone
            found = self._network.head(_at(run.features, window.query_steps), *inputs, train=train)
            return found if mask is None else self._network.spec.mask(found, _at(mask, window.query_steps))
        if run.outputs is None:
            found = self._network.head(run.features)
            run.outputs = found if mask is None else self._network.spec.mask(found, mask)
        return _at(run.outputs, window.query_steps)

    @property
    def updated_stats(self) -> dict[str, Array]:
        """The network's running statistics after this pass."""
        return self._network.updated_stats

    def q1(self, window: SequenceInput, *inputs: Any) -> Array:
        """Return the outputs of an ensemble's first member."""
        return self._network.q1_head(_at(self._run(window).features, window.query_steps), *inputs)

    def _run(self, window: SequenceInput) -> _Run:
        """Return the pass over a window, shared by windows of the same steps with other positions."""
        run = next((run for run in self._seen if run.of.previous_reward is window.previous_reward), None)
        if run is None:
            run = _Run(window, *self._network.trunk(window.within(self._prefix)))
            self._seen.append(run)
        self.carry = {f"{self._prefix}{key}": part for key, part in run.carry.items()}
        return run


@dataclass
class _Run:
    """One pass of a network over a window, which is kept so that its arrays' identity stays unique."""

    of: SequenceInput
    features: tuple[Array, ...]  # of each torso
    carry: dict[str, Array]
    outputs: Any = None  # the head's, of all positions, once they were asked for


def _at(tree: Any, at: Array | None) -> Any:
    """Return arrays (B, S, ...) at positions (B, T) as (B, T, ...); without positions (S = 1) as (B, ...)."""

    def chosen(array: Array) -> Array:
        if at is None:
            return array[:, 0]
        return array_namespace(array).take_along_axis(array, at if array.ndim == 2 else at[..., None], axis=1)

    return tree_map(chosen, tree)
