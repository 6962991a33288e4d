"""Running normalization of observations, and scaling of rewards.

Checkpoints contain the statistics. Evaluations use them without updating them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, Tree
from duetto.environments import obs_tree
from duetto.errors import CheckpointError
from duetto.functional import state_schema
from duetto.functional.running_stats import Moments, initial_moments, merge_moments, normalize, update_moments
from duetto.functional.state_schema import ARRAY, DictOf
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Space

AnyBatch = Batch | RolloutBatch | SequenceBatch


class Normalizer:
    """Scales each Box, except images, by its running mean and std. Images and discrete parts are unchanged.

    The memory stores raw observations, and batches are scaled by the statistics at the time of learning. Only in the
    mode "steps" does the memory store scaled observations.

    Attributes:
        mode: The option that selects the observations that update the statistics.
        clip: Limit of the absolute values of scaled observations.
        moments: The statistics of each scaled part, by its name in a Dict; "" for a Box.
    """

    STATE: ClassVar[Any] = DictOf({"mean": ARRAY, "variance": ARRAY, "count": float})

    mode: str
    clip: float

    def __init__(self, space: Space, mode: str, clip: float = 5.0, prior: float = 1.0) -> None:
        """Start with empty statistics.

        Args:
            space: The space of observations.
            mode: Selects the observations that update the statistics.
                "off": none.
                "collected": every observation that the policy acts on.
                "steps": as "collected", but the memory stores the scaled observations.
                "sampled": the observations and next observations of every batch.
                "rollouts": the observations of a rollout after learning from it, so that collecting and learning use
                the same statistics.
            clip: Limit of the absolute values of scaled observations.
            prior: Weight of the initial mean 0 and variance 1, in samples.
        """
        self.mode, self.clip = mode, clip
        self._boxes = {} if mode == "off" else _scalable(space)
        self.moments: dict[str, Moments] = {n: initial_moments(part.shape, prior) for n, part in self._boxes.items()}
        self.news: dict[str, Moments] = {}  # statistics of the observations since `follow`

    def follow(self, moments: dict[str, Moments]) -> None:
        """Replace the statistics; from now on, also collect statistics of new observations in `news`."""
        self.moments = dict(moments)
        self.news = {name: initial_moments(np.shape(part.mean), 0.0) for name, part in moments.items()}

    def learn_of(self, news: dict[str, Moments]) -> None:
        """Merge `news`, which another normalizer has collected since its call of `follow`, into the statistics."""
        for name, part in news.items():
            self.moments = self.moments | {name: merge_moments(self.moments[name], part)}

    @property
    def stored(self) -> bool:
        """Whether observations are scaled before the memory stores them."""
        return self.mode == "steps"

    def kept(self, space: Space) -> Space:
        """Return the space of stored observations, in which scaled parts are float32."""
        if not self.stored:
            return space
        kept = {name: replace(self._boxes[name], dtype="float32") for name in self.moments}
        if not isinstance(space, Dict):
            return kept.get("", space)
        return Dict(tuple((name, kept.get(name, part)) for name, part in space.parts))

    def observe(self, obs: Tree) -> None:
        """Update the statistics with observations (B, ...)."""
        for name, moments in self.moments.items():
            part = obs[name] if isinstance(obs, dict) else obs
            self.moments = self.moments | {name: update_moments(moments, part)}  # a new dict: actors hold the old one
            if name in self.news:
                self.news[name] = update_moments(self.news[name], part)

    def __call__(self, obs: Tree) -> Tree:
        """Scale observations (B, ...), without changing their shape."""
        if not self.moments:
            return obs
        if not isinstance(obs, dict):
            return normalize(obs, self.moments[""], self.clip)
        return obs | {name: normalize(obs[name], moments, self.clip) for name, moments in self.moments.items()}

    def scaled(self, obs: Tree | SequenceInput) -> Tree | SequenceInput:
        """Scale observations, also in a `SequenceInput`; no change if the memory stores scaled observations."""
        if self.stored:
            return obs
        return obs._replace(obs=self(obs.obs)) if isinstance(obs, SequenceInput) else self(obs)

    def batch(self, batch: AnyBatch) -> AnyBatch:
        """Scale a batch's observations; in the mode "sampled", update the statistics first."""
        if not self.moments:
            return batch
        if isinstance(batch, RolloutBatch):
            return batch._replace(obs=self.scaled(batch.obs))
        if isinstance(batch, SequenceBatch):
            if self.mode == "sampled":
                self._observe_learned(batch, ahead=0)
                self._observe_learned(batch, ahead=1)
            return batch._replace(obs=self.scaled(batch.obs))
        if self.mode == "sampled":
            self.observe(batch.obs)
        obs = self(batch.obs)  # before the statistics include `next_obs`, as in skrl
        if self.mode == "sampled":
            self.observe(batch.next_obs)
        return batch._replace(obs=obs, next_obs=self(batch.next_obs))

    def after_learning(self, batch: AnyBatch) -> None:
        """In the mode "rollouts", update the statistics with the raw observations of a rollout's batch."""
        if self.mode == "rollouts":
            obs = batch.obs.obs if isinstance(batch.obs, SequenceInput) else batch.obs
            self.observe(obs_tree.take(obs, batch.weight > 0))

    def _observe_learned(self, batch: SequenceBatch, ahead: int) -> None:
        """Update the statistics with the observations of unmasked steps; with `ahead` 1, of the steps after them."""
        length = batch.mask.shape[1]
        learned = np.zeros((len(batch.mask), length + 1), bool)  # + 1 for the last step's next observation
        learned[:, ahead : length + ahead] = batch.mask > 0
        self.observe(obs_tree.take(batch.obs.obs, learned))

    def state_dict(self) -> dict[str, Any]:
        """Return mean, variance and count of each scaled part."""
        return {name: moments._asdict() for name, moments in self.moments.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`.

        Raises:
            CheckpointError: The state has statistics of other parts of the observation.
        """
        if state.keys() != self.moments.keys():
            raise CheckpointError(
                f"The checkpoint has statistics of the observations {sorted(state)}, but this run needs those of "
                f"{sorted(self.moments)}. Change normalize_observations back."
            )
        form = {name: moments._asdict() | {"count": float} for name, moments in self.moments.items()}
        state_schema.check(state, form, "normalizer")
        self.moments = {
            name: Moments(np.array(part["mean"]), np.array(part["variance"]), part["count"])
            for name, part in state.items()
        }


def _scalable(space: Space) -> dict[str, Box]:
    """Return the parts to scale, by name: every Box that networks do not use as an image."""
    parts = space.parts if isinstance(space, Dict) else (("", space),)
    return {name: part for name, part in parts if isinstance(part, Box) and not part.is_image}


class RewardScaler:
    """Divides rewards by the running std of their discounted sums.

    There are two variants. Rewards are scaled when collected, and clipped to ±10 (OpenAI Baselines). Or rewards are
    scaled when sampled from the buffer, by the statistics at that time (Palenicek et al., 2025, XQC; Lee et al., 2025,
    SimbaV2). The mean is not subtracted, because this could change which policy is best.

    The sum restarts after the last reward of an episode. In the code of SimbaV2, XQC and FlashSAC it restarts before
    this reward, which the next episode's sum then includes.

    Attributes:
        sampled: Whether rewards are scaled when sampled.
        moments: Mean and variance of the sums.
        largest: The largest absolute sum so far.
        news: Statistics of the sums since `follow`; None before.
    """

    STATE: ClassVar[dict[str, Any]] = {
        "sums": ARRAY,
        "largest": float,
        "moments": {"mean": np.zeros(()), "variance": np.zeros(()), "count": float},
    }

    sampled: bool
    largest: float

    def __init__(
        self, num_envs: int, discount: float, prior: float = 1.0, sampled: bool = False, bound: float = 0.0
    ) -> None:
        """Start with empty statistics. `RewardScaling` explains `prior`, `sampled` and `bound`."""
        self._discount, self._bound = discount, bound
        self.sampled, self.largest = sampled, 0.0
        self._sums = np.zeros(num_envs)  # Σ γ^k r of the running episodes
        self.moments: Moments = initial_moments((), prior)
        self.news: Moments | None = None

    def follow(self, moments: Moments) -> None:
        """Replace the statistics; from now on, also collect statistics of new discounted sums in `news`."""
        self.moments, self.news = moments, initial_moments((), 0.0)

    def learn_of(self, news: Moments) -> None:
        """Merge `news`, which another scaler has collected since its call of `follow`, into the statistics."""
        self.moments = merge_moments(self.moments, news)

    def __call__(self, reward: np.ndarray, env: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Update the statistics with the rewards (K,) of the environments `env` (K,); return scaled rewards, float32.

        If rewards are scaled when sampled, return them unchanged. `done` (K,) bool is True if an episode ended.
        """
        self._sums[env] = self._sums[env] * self._discount + reward
        self.largest = max(self.largest, float(np.max(np.abs(self._sums[env]), initial=0.0)))
        self.moments = update_moments(self.moments, self._sums[env])
        if self.news is not None:
            self.news = update_moments(self.news, self._sums[env])
        self._sums[env[done]] = 0.0
        if self.sampled:
            return reward
        return np.clip(reward / np.sqrt(self.moments.variance + 1e-8), -10.0, 10.0).astype(np.float32)

    def batch(self, batch: AnyBatch) -> AnyBatch:
        """If `sampled`, divide a batch's rewards by max(√(variance + 1e-8), largest / bound); a bound of 0 means ∞."""
        if not self.sampled or isinstance(batch, RolloutBatch):
            return batch
        least = self.largest / self._bound if self._bound else 0.0
        factor = np.float32(1.0 / max(np.sqrt(self.moments.variance + 1e-8), least))
        one = batch.one_step
        if one is not None:
            one = one._replace(reward=one.reward * factor)
        return batch._replace(reward=batch.reward * factor, one_step=one)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Restart the sums of all environments, or where `envs` (N,) is True, because new episodes start."""
        self._sums[... if envs is None else envs] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the discounted sums (N,) of the running episodes, and the statistics."""
        mean, variance, count = self.moments
        moments = {"mean": np.asarray(mean), "variance": np.asarray(variance), "count": float(count)}
        return {"sums": self._sums.copy(), "largest": self.largest, "moments": moments}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Restore the result of `state_dict`.

        Raises:
            CheckpointError: The checkpoint's run did not scale rewards, or had another number of environments.
        """
        if state is None:
            raise CheckpointError(
                "The checkpoint has no statistics of rewards. Change normalize_rewards back to false in config.yaml."
            )
        state_schema.check(state, {"sums": self._sums}, "collector/rewards")
        self._sums = np.array(state["sums"])
        self.moments, self.largest = Moments(**state["moments"]), state["largest"]
