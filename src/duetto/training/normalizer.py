"""Running normalisation of observations: part of the run's state, saved with it, frozen in evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, Tree
from duetto.errors import CheckpointError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.functional.scaling import Moments, fresh_moments, merged, scaled
from duetto.networks.spaces import Box, Dict, Space
from duetto.networks.windows import Window

AnyBatch = Batch | RolloutBatch | SequenceBatch


class Normalizer:
    """Scales every float part of an observation by its running mean and std; integers and images stay as they are.

    The memory holds raw observations: what was collected early is scaled by what is known when it is learned from.
    """

    def __init__(self, space: Space, mode: str) -> None:
        """`mode` says which observations make the statistics: "off", none; "collected", those acted on, step by step;
        "sampled", those of every batch learned from; "rollouts", those of each rollout, once it has been learned from,
        so that it was learned from as it was collected.
        """
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

    def scaled(self, obs: Tree | Window) -> Tree | Window:
        """Scaled observations, also inside a window."""
        return obs._replace(obs=self(obs.obs)) if isinstance(obs, Window) else self(obs)

    def batch(self, batch: AnyBatch) -> AnyBatch:
        """The batch with its observations scaled."""
        if not self._moments:
            return batch
        if isinstance(batch, RolloutBatch):
            return batch._replace(obs=self.scaled(batch.obs))
        if isinstance(batch, SequenceBatch):
            if self.mode == "sampled":
                self._observe_learned(batch)
            return batch._replace(obs=self.scaled(batch.obs))
        if self.mode == "sampled":
            self.observe(batch.obs)
        return batch._replace(obs=self(batch.obs), next_obs=self(batch.next_obs))

    def after_learning(self, batch: AnyBatch) -> None:
        """Take a rollout's (raw) batch into the statistics."""
        if self.mode == "rollouts":
            obs = batch.obs.obs if isinstance(batch.obs, Window) else batch.obs
            self._observe_where(batch.weight > 0, obs)

    def _observe_learned(self, batch: SequenceBatch) -> None:
        learned = np.zeros((len(batch.mask), batch.mask.shape[1] + 1), bool)  # one more: what the last step led to
        learned[:, :-1] = batch.mask > 0
        self._observe_where(learned, batch.obs.obs)

    def _observe_where(self, chosen: np.ndarray, obs: Tree) -> None:
        self.observe({name: part[chosen] for name, part in obs.items()} if isinstance(obs, dict) else obs[chosen])

    def state_dict(self) -> dict[str, Any]:
        """Mean, variance and count of each part."""
        return {name: moments._asdict() for name, moments in self._moments.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`.

        Raises:
            CheckpointError: The state is of other parts of an observation, or of none.
        """
        forms.check(state, Each({"mean": ARRAY, "variance": ARRAY, "count": float}), "normalizer")
        if state.keys() != self._moments.keys():
            raise CheckpointError(
                f"The checkpoint has statistics of {_listed(state)} observations, this run wants them of "
                f"{_listed(self._moments)}. Put normalize_observations back to what it was in config.yaml."
            )
        own = {name: {"mean": part.mean, "variance": part.variance} for name, part in self._moments.items()}
        forms.check(state, own, "normalizer")
        self._moments = {
            name: Moments(np.array(part["mean"]), np.array(part["variance"]), part["count"])
            for name, part in state.items()
        }


def _listed(parts: Mapping[str, Any]) -> str:
    return ", ".join(name or "all" for name in sorted(parts)) or "no"


class RewardScaler:
    """Divides rewards by the running std of their discounted sums, and clips them to ±10 (OpenAI Baselines).

    Rewards are not centred: that would change what is best.
    """

    def __init__(self, num_envs: int, discount: float) -> None:
        self._discount = discount
        self._sums = np.zeros(num_envs)  # Σ γ^k r of the running episodes
        self._moments = fresh_moments(())

    def __call__(self, reward: np.ndarray, env: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Scaled rewards (K,) float32 of the environments `env` (K,), which enter the statistics first."""
        self._sums[env] = self._sums[env] * self._discount + reward
        self._moments = merged(self._moments, self._sums[env])
        self._sums[env[done]] = 0.0
        return np.clip(reward / np.sqrt(self._moments.variance + 1e-8), -10.0, 10.0).astype(np.float32)

    def interrupt(self) -> None:
        """Every environment begins a new episode."""
        self._sums[:] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The sums and their statistics."""
        return {
            "sums": self._sums.copy(),
            "moments": {name: np.asarray(x) for name, x in self._moments._asdict().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        own = {"sums": self._sums, "moments": dict.fromkeys(Moments._fields, np.zeros(()))}
        forms.check(state, own, "collector/rewards")
        self._sums = np.array(state["sums"])
        mean, variance, count = (np.asarray(state["moments"][name]) for name in Moments._fields)
        self._moments = Moments(mean, variance, float(count))
