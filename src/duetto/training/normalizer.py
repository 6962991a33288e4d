"""Running normalisation of observations: part of the run's state, saved with it, frozen in evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch, Tree
from duetto.errors import CheckpointError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.functional.scaling import Moments, fresh_moments, merged, scaled, together
from duetto.networks.spaces import Box, Dict, Space
from duetto.networks.windows import Window

AnyBatch = Batch | RolloutBatch | SequenceBatch


class Normalizer:
    """Scales every Box of an observation that is no image by its running mean and std; choices stay as they are, too.

    The memory holds raw observations: what was collected early is scaled by what is known when it is learned from. Only
    with the mode "steps" it holds them as they were acted on.
    """

    mode: str
    clip: float

    def __init__(self, space: Space, mode: str, clip: float = 5.0, prior: float = 1.0) -> None:
        """`mode` says which observations make the statistics: "off", none; "collected", those acted on, step by step;
        "sampled", those of every batch learned from, "sampled_both", and the next ones too; "rollouts", those of each
        rollout, once it has been learned from, so that it was learned from as it was collected; "steps", those acted
        on, as "collected", but a rollout is learned from as it was collected. For the others see `ObservationScaling`.
        """
        self.mode, self.clip = mode, clip
        self._boxes = {} if mode == "off" else _scalable(space)
        self._moments = {name: fresh_moments(part.shape, prior) for name, part in self._boxes.items()}
        self.left_alone: list[str] = []  # bytes that a checkpoint has no statistics of
        self.news: dict[str, Moments] = {}  # of what was observed since `follow`

    @property
    def moments(self) -> dict[str, Moments]:
        """Of each part that is scaled."""
        return dict(self._moments)

    def follow(self, moments: dict[str, Moments]) -> None:
        """Go on from what others know, and note as `news` what is observed from here on."""
        self._moments = dict(moments)
        self.news = {name: fresh_moments(np.shape(part.mean), 0.0) for name, part in moments.items()}

    def learn_of(self, news: dict[str, Moments]) -> None:
        """Take in what another one has observed."""
        for name, part in news.items():
            self._moments[name] = together(self._moments[name], part)

    @property
    def idle(self) -> str:
        """What is said where it is asked for and there is nothing that it could scale; else ""."""
        if self.mode == "off" or self._boxes:
            return ""
        return (
            "normalize_observations has no effect: the observations are images or choices, which are never scaled. "
            "Leave it out."
        )

    @property
    def stored(self) -> bool:
        """Whether observations are scaled before the memory gets them."""
        return self.mode == "steps"

    def kept(self, space: Space) -> Space:
        """Of observations of this space, what the memory gets: bytes are none once they are scaled."""
        if not self.stored:
            return space
        kept = {name: replace(self._boxes[name], dtype="float32") for name in self._moments}
        if not isinstance(space, Dict):
            return kept.get("", space)
        return Dict(tuple((name, kept.get(name, part)) for name, part in space.parts))

    def observe(self, obs: Tree) -> None:
        """Take observations (B, ...) into the statistics."""
        for name, moments in self._moments.items():
            part = obs[name] if isinstance(obs, dict) else obs
            self._moments[name] = merged(moments, part)
            if name in self.news:
                self.news[name] = merged(self.news[name], part)

    def __call__(self, obs: Tree) -> Tree:
        """Scaled observations, same shapes."""
        if not self._moments:
            return obs
        if not isinstance(obs, dict):
            return scaled(obs, self._moments[""], self.clip)
        return obs | {name: scaled(obs[name], moments, self.clip) for name, moments in self._moments.items()}

    def scaled(self, obs: Tree | Window) -> Tree | Window:
        """The memory's observations scaled, also inside a window."""
        if self.stored:
            return obs
        return obs._replace(obs=self(obs.obs)) if isinstance(obs, Window) else self(obs)

    def batch(self, batch: AnyBatch) -> AnyBatch:
        """The batch with its observations scaled."""
        if not self._moments:
            return batch
        if isinstance(batch, RolloutBatch):
            return batch._replace(obs=self.scaled(batch.obs))
        if isinstance(batch, SequenceBatch):
            for ahead in range({"sampled": 1, "sampled_both": 2}.get(self.mode, 0)):
                self._observe_learned(batch, ahead)
            return batch._replace(obs=self.scaled(batch.obs))
        if self.mode in ("sampled", "sampled_both"):
            self.observe(batch.obs)
        obs = self(batch.obs)  # before the next ones are known, as in skrl
        if self.mode == "sampled_both":
            self.observe(batch.next_obs)
        return batch._replace(obs=obs, next_obs=self(batch.next_obs))

    def after_learning(self, batch: AnyBatch) -> None:
        """Take a rollout's (raw) batch into the statistics."""
        if self.mode == "rollouts":
            obs = batch.obs.obs if isinstance(batch.obs, Window) else batch.obs
            self._observe_where(batch.weight > 0, obs)

    def _observe_learned(self, batch: SequenceBatch, ahead: int) -> None:
        """Of the steps learned from, what they were taken from, or with `ahead` 1 what each led to."""
        length = batch.mask.shape[1]
        learned = np.zeros((len(batch.mask), length + 1), bool)  # one more: what the last step led to
        learned[:, ahead : length + ahead] = batch.mask > 0
        self._observe_where(learned, batch.obs.obs)

    def _observe_where(self, chosen: np.ndarray, obs: Tree) -> None:
        self.observe({name: part[chosen] for name, part in obs.items()} if isinstance(obs, dict) else obs[chosen])

    def state_dict(self) -> dict[str, Any]:
        """Mean, variance and count of each part."""
        return {name: moments._asdict() for name, moments in self._moments.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`. Bytes that it has nothing of stay as they are: earlier versions did not scale them.

        Raises:
            CheckpointError: The state is of other parts of an observation, or of none.
        """
        forms.check(state, Each({"mean": ARRAY, "variance": ARRAY, "count": float}), "normalizer")
        self.left_alone = self._unscaled_bytes(state)
        wanted = {name: part.shape for name, part in self._boxes.items() if name not in self.left_alone}
        if state.keys() != wanted.keys():
            raise CheckpointError(
                f"The checkpoint has statistics of {_listed(state)} observations, this run wants them of "
                f"{_listed(wanted)}. Put normalize_observations back to what it was there."
            )
        own = {name: dict.fromkeys(("mean", "variance"), np.zeros(shape)) for name, shape in wanted.items()}
        forms.check(state, own, "normalizer")
        self._moments = {
            name: Moments(np.array(part["mean"]), np.array(part["variance"]), part["count"])
            for name, part in state.items()
        }

    def _unscaled_bytes(self, state: dict[str, Any]) -> list[str]:
        """All parts of bytes, if the state has none of them: only an earlier version can have left them alone."""
        own = [name for name, part in self._boxes.items() if part.dtype == "uint8"]
        return [] if any(name in state for name in own) else own


def _scalable(space: Space) -> dict[str, Box]:
    """What is scaled, by name: whatever the networks do not take as an image."""
    parts = space.parts if isinstance(space, Dict) else (("", space),)
    return {name: part for name, part in parts if isinstance(part, Box) and not part.is_image}


def _listed(parts: Mapping[str, Any]) -> str:
    return ", ".join(name or "all" for name in sorted(parts)) or "no"


class RewardScaler:
    """Divides rewards by the running std of their discounted sums, and clips them to ±10 (OpenAI Baselines).

    Rewards are not centred: that would change what is best.
    """

    def __init__(self, num_envs: int, discount: float, prior: float = 1.0) -> None:
        """`prior` is how many samples the first statistics, mean 0 and variance 1, count for."""
        self._discount = discount
        self._sums = np.zeros(num_envs)  # Σ γ^k r of the running episodes
        self.moments: Moments = fresh_moments((), prior)
        self.news: Moments | None = None  # of what was rewarded since `follow`

    def follow(self, moments: Moments) -> None:
        """Go on from the statistics that others know, and note as `news` what comes from here on."""
        self.moments, self.news = moments, fresh_moments((), 0.0)

    def learn_of(self, news: Moments) -> None:
        """Take in what another one has seen."""
        self.moments = together(self.moments, news)

    def __call__(self, reward: np.ndarray, env: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Scaled rewards (K,) float32 of the environments `env` (K,), which enter the statistics first."""
        self._sums[env] = self._sums[env] * self._discount + reward
        self.moments = merged(self.moments, self._sums[env])
        if self.news is not None:
            self.news = merged(self.news, self._sums[env])
        self._sums[env[done]] = 0.0
        return np.clip(reward / np.sqrt(self.moments.variance + 1e-8), -10.0, 10.0).astype(np.float32)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Every environment, or those in `envs` (N,) bool, begins a new episode."""
        self._sums[... if envs is None else envs] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The sums and their statistics."""
        return {
            "sums": self._sums.copy(),
            "moments": {name: np.asarray(x) for name, x in self.moments._asdict().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`.

        Raises:
            CheckpointError: The state is that of a run that leaves its rewards alone.
        """
        if not state:
            raise CheckpointError(
                "The checkpoint has no statistics of rewards. Put normalize_rewards back to false in config.yaml."
            )
        own = {"sums": self._sums, "moments": dict.fromkeys(Moments._fields, np.zeros(()))}
        forms.check(state, own, "collector/rewards")
        self._sums = np.array(state["sums"])
        self.take_over(state)

    def take_over(self, state: dict[str, Any]) -> None:
        """Go on with the statistics in another one's `state_dict`, whose episodes are none of this one's."""
        forms.check(state.get("moments"), dict.fromkeys(Moments._fields, np.zeros(())), "collector/rewards/moments")
        mean, variance, count = (np.asarray(state["moments"][name]) for name in Moments._fields)
        self.moments = Moments(mean, variance, float(count))
