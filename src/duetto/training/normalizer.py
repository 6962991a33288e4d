"""Running normalization of observations and scaling of rewards: part of the run's state, frozen in evaluation."""

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
    """Running scaling of observations: each Box that is no image by its mean and std; images and choices stay.

    The memory holds raw observations, which are scaled by the statistics at the time of learning. Only with the mode
    "steps" it holds them as they were acted on.

    Attributes:
        mode: Which observations make the statistics.
        moments: The statistics of each part that is scaled, by name.
    """

    STATE: ClassVar[Any] = DictOf({"mean": ARRAY, "variance": ARRAY, "count": float})

    mode: str
    clip: float

    def __init__(self, space: Space, mode: str, clip: float = 5.0, prior: float = 1.0) -> None:
        """`mode` says which observations make the statistics: "off", none; "collected", those acted on, step by step;
        "sampled", those of every batch learned from, and its next observations; "rollouts", those of each rollout,
        after it was learned from, so that it is scaled as it was when collected; "steps", those acted on, as
        "collected", but a rollout is learned from as it was collected. For `clip` and `prior` see `ObservationScaling`.
        """
        self.mode, self.clip = mode, clip
        self._boxes = {} if mode == "off" else _scalable(space)
        self.moments: dict[str, Moments] = {n: initial_moments(part.shape, prior) for n, part in self._boxes.items()}
        self.news: dict[str, Moments] = {}  # of the observations since `follow`

    def follow(self, moments: dict[str, Moments]) -> None:
        """Replace the statistics, and also collect later observations in `news`."""
        self.moments = dict(moments)
        self.news = {name: initial_moments(np.shape(part.mean), 0.0) for name, part in moments.items()}

    def learn_of(self, news: dict[str, Moments]) -> None:
        """Merge the statistics of another normalizer."""
        for name, part in news.items():
            self.moments = self.moments | {name: merge_moments(self.moments[name], part)}

    @property
    def stored(self) -> bool:
        """Whether observations are scaled before the memory stores them."""
        return self.mode == "steps"

    def kept(self, space: Space) -> Space:
        """The space of stored observations: scaled parts become float32, bytes too."""
        if not self.stored:
            return space
        kept = {name: replace(self._boxes[name], dtype="float32") for name in self.moments}
        if not isinstance(space, Dict):
            return kept.get("", space)
        return Dict(tuple((name, kept.get(name, part)) for name, part in space.parts))

    def observe(self, obs: Tree) -> None:
        """Take observations (B, ...) into the statistics."""
        for name, moments in self.moments.items():
            part = obs[name] if isinstance(obs, dict) else obs
            self.moments = self.moments | {name: update_moments(moments, part)}  # a new dict: actors hold the old one
            if name in self.news:
                self.news[name] = update_moments(self.news[name], part)

    def __call__(self, obs: Tree) -> Tree:
        """Scale observations; the shapes stay the same."""
        if not self.moments:
            return obs
        if not isinstance(obs, dict):
            return normalize(obs, self.moments[""], self.clip)
        return obs | {name: normalize(obs[name], moments, self.clip) for name, moments in self.moments.items()}

    def scaled(self, obs: Tree | SequenceInput) -> Tree | SequenceInput:
        """Scale observations from the memory, also inside a window, unless they were stored scaled."""
        if self.stored:
            return obs
        return obs._replace(obs=self(obs.obs)) if isinstance(obs, SequenceInput) else self(obs)

    def batch(self, batch: AnyBatch) -> AnyBatch:
        """Scale a batch's observations; in the mode "sampled", first update the statistics."""
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
        obs = self(batch.obs)  # before the next ones are known, as in skrl
        if self.mode == "sampled":
            self.observe(batch.next_obs)
        return batch._replace(obs=obs, next_obs=self(batch.next_obs))

    def after_learning(self, batch: AnyBatch) -> None:
        """Take a rollout's (raw) batch into the statistics."""
        if self.mode == "rollouts":
            obs = batch.obs.obs if isinstance(batch.obs, SequenceInput) else batch.obs
            self.observe(obs_tree.take(obs, batch.weight > 0))

    def _observe_learned(self, batch: SequenceBatch, ahead: int) -> None:
        """Take the observations of the steps learned from into the statistics; with `ahead` 1 the next ones."""
        length = batch.mask.shape[1]
        learned = np.zeros((len(batch.mask), length + 1), bool)  # one more: the last step's next observation
        learned[:, ahead : length + ahead] = batch.mask > 0
        self.observe(obs_tree.take(batch.obs.obs, learned))

    def state_dict(self) -> dict[str, Any]:
        """Mean, variance and count of each part that is scaled."""
        return {name: moments._asdict() for name, moments in self.moments.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`.

        Raises:
            CheckpointError: The state is of other parts of an observation, or of none.
        """
        if state.keys() != self.moments.keys():
            raise CheckpointError(
                f"The checkpoint has statistics of the observations {sorted(state)}, this run wants them of "
                f"{sorted(self.moments)}. Set normalize_observations as it was."
            )
        form = {name: moments._asdict() | {"count": float} for name, moments in self.moments.items()}
        state_schema.check(state, form, "normalizer")
        self.moments = {
            name: Moments(np.array(part["mean"]), np.array(part["variance"]), part["count"])
            for name, part in state.items()
        }


def _scalable(space: Space) -> dict[str, Box]:
    """The parts that are scaled, by name: every Box that the networks do not take as an image."""
    parts = space.parts if isinstance(space, Dict) else (("", space),)
    return {name: part for name, part in parts if isinstance(part, Box) and not part.is_image}


class RewardScaler:
    """Running scaling of rewards by the std of their discounted sums.

    Rewards are scaled when they are collected, and clipped to ±10 (OpenAI Baselines); or when they are sampled from the
    buffer, by the statistics of that moment (Palenicek et al., 2025, XQC; Lee et al., 2025, SimbaV2). They are not
    centered: that would change which policy is best. A sum ends with its episode; SimbaV2's and FlashSAC's code ends it
    a step earlier, so that the last reward of an episode starts the sum of the next.

    Attributes:
        sampled: Whether rewards are scaled when they are sampled.
        moments: Mean and variance of the sums.
        largest: The largest absolute sum.
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
        """For `prior`, `sampled` and `bound` see `RewardScaling`."""
        self._discount, self._bound = discount, bound
        self.sampled, self.largest = sampled, 0.0
        self._sums = np.zeros(num_envs)  # Σ γ^k r of the running episodes
        self.moments: Moments = initial_moments((), prior)
        self.news: Moments | None = None  # of the rewards since `follow`

    def follow(self, moments: Moments) -> None:
        """Replace the statistics, and also collect later rewards in `news`."""
        self.moments, self.news = moments, initial_moments((), 0.0)

    def learn_of(self, news: Moments) -> None:
        """Merge the statistics of another scaler."""
        self.moments = merge_moments(self.moments, news)

    def __call__(self, reward: np.ndarray, env: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Take the rewards (K,) of the environments `env` (K,) into the statistics, and scale them, float32.

        If rewards are scaled when they are sampled, they are returned unchanged.
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
        """Scale a sampled batch's rewards: r / max(√(variance + 1e-8), largest / bound)."""
        if not self.sampled or isinstance(batch, RolloutBatch):
            return batch
        least = self.largest / self._bound if self._bound else 0.0
        factor = np.float32(1.0 / max(np.sqrt(self.moments.variance + 1e-8), least))
        one = batch.one_step
        if one is not None:
            one = one._replace(reward=one.reward * factor)
        return batch._replace(reward=batch.reward * factor, one_step=one)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Note that all environments, or those in `envs` (N,) bool, start new episodes."""
        self._sums[... if envs is None else envs] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The running discounted sums (N,) and their statistics."""
        mean, variance, count = self.moments
        moments = {"mean": np.asarray(mean), "variance": np.asarray(variance), "count": float(count)}
        return {"sums": self._sums.copy(), "largest": self.largest, "moments": moments}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Undo `state_dict`.

        Raises:
            CheckpointError: The state is of a run that does not scale rewards, or of another number of environments.
        """
        if state is None:
            raise CheckpointError(
                "The checkpoint has no statistics of rewards. Put normalize_rewards back to false in config.yaml."
            )
        state_schema.check(state, {"sums": self._sums}, "collector/rewards")
        self._sums = np.array(state["sums"])
        self.moments, self.largest = Moments(**state["moments"]), state["largest"]
