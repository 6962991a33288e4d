"""Running normalisation of observations: part of the run's state, saved with it, frozen in evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Batch, Tree
from duetto.functional.scaling import Moments, fresh_moments, merged, scaled
from duetto.networks.spaces import Box, Dict, Space


class Normalizer:
    """Scales every float part of an observation by its running mean and std; integers and images stay as they are.

    The memory holds raw observations: what was collected early is scaled by what is known when it is learned from.
    """

    def __init__(self, space: Space, mode: str) -> None:
        """`mode` is "off", "collected" (statistics of the steps taken) or "sampled" (of the batches learned from)."""
        self.mode = mode
        parts = dict(space.parts) if isinstance(space, Dict) else {"": space}
        self._moments = {
            name: fresh_moments(part.shape)
            for name, part in parts.items()
            if mode != "off" and isinstance(part, Box) and part.dtype != "uint8"
        }

    def observe(self, obs: Tree) -> None:
        """Take observations (B, ...) into the statistics."""
        for name, moments in self._moments.items():
            self._moments[name] = merged(moments, obs[name] if name else obs)

    def __call__(self, obs: Tree) -> Tree:
        """Scaled observations, same shapes."""
        if not self._moments:
            return obs
        if "" in self._moments:
            return scaled(obs, self._moments[""])
        return obs | {name: scaled(obs[name], moments) for name, moments in self._moments.items()}

    def batch(self, batch: Batch) -> Batch:
        """The batch with both its observations scaled."""
        if not self._moments:
            return batch
        if self.mode == "sampled":
            self.observe(batch.obs)
        return batch._replace(obs=self(batch.obs), next_obs=self(batch.next_obs))

    def state_dict(self) -> dict[str, Any]:
        """Mean, variance and count of each part."""
        return {name: moments._asdict() for name, moments in self._moments.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        self._moments = {
            name: Moments(np.array(part["mean"]), np.array(part["variance"]), part["count"])
            for name, part in state.items()
        }
