"""A recurrent network as losses and policies call it: like any other."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from duetto.networks.windows import Window

Array = Any


class Unrolling:
    """Runs over each window once, however often it is asked about some of its positions.

    A loss asks the online network twice (what was done, what would be best next), for two `at` of the same window.
    Make a new one for each evaluation of a loss.

    Attributes:
        carry: The network's state behind the last window, by name.
    """

    def __init__(self, network: Any, name: str) -> None:
        """`name` is the one under which windows hold its carry; a target network starts from its source's."""
        self._network, self._prefix = network, f"{name}/"
        self._seen: dict[int, tuple[Any, dict[str, Array], list[Any]]] = {}
        self.carry: dict[str, Array] = {}

    def __call__(self, window: Window, *inputs: Any) -> Any:
        """The network's outputs at the window's positions."""
        trunk, outputs = self._run(window)
        # Inputs are of the positions asked for; a policy with values (several trunks) is no array to take some from.
        if inputs or isinstance(trunk, tuple):
            return self._network.head(_features_at(trunk, window.at), *inputs)
        if not outputs:
            outputs.append(self._network.head(trunk))
        return _at(outputs[0], window.at)

    def first(self, window: Window, *inputs: Any) -> Array:
        """Of an ensemble, the first member's."""
        trunk, _ = self._run(window)
        return self._network.first_head(_features_at(trunk, window.at), *inputs)

    def _run(self, window: Window) -> tuple[Any, list[Any]]:
        """Features of all positions, and, once they were made, the head's outputs."""
        key = id(window.previous_reward)
        if key not in self._seen:
            prefix = self._prefix
            own = {key.removeprefix(prefix): part for key, part in window.carry.items() if key.startswith(prefix)}
            self._seen[key] = (*self._network.trunk(window._replace(carry=own)), [])
        trunk, carry, outputs = self._seen[key]
        self.carry = {f"{self._prefix}{key}": part for key, part in carry.items()}
        return trunk, outputs


def _features_at(trunk: Any, at: Array | None) -> Any:
    return tuple(_at(part, at) for part in trunk) if isinstance(trunk, tuple) else _at(trunk, at)


def _at(features: Array, at: Array | None) -> Array:
    """(B, S, F) at positions (B, T): (B, T, F); without positions, S = 1 and there is no axis for time."""
    if at is None:
        return features[:, 0]
    return array_namespace(features).take_along_axis(features, at[..., None], axis=1)
