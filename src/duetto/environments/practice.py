"""Change the rewards and ends that an agent learns from, while games and their scores stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.environments.allowing import Allowing
from duetto.environments.engines import Engine, Outcome
from duetto.environments.spaces import Layout
from duetto.environments.trees import Tree
from duetto.errors import UsageError

FIRED = (0, 1, 2)  # no action, FIRE, and the action behind it: what OpenAI Baselines does, a step each, after a life
FIRED_FIRST = 2  # of these, at a game's start, where frames without action went before


def learned_reward(reward: np.ndarray, clip: bool, log: bool) -> np.ndarray:
    """Return what is learned from for rewards r: sign(r) log(1 + |r|) with `log`, sign(r) with `clip`, else r."""
    if log:
        return np.sign(reward) * np.log1p(np.abs(reward))
    return np.sign(reward) if clip else reward


class Practice(Engine):
    """An engine whose rewards and terminations are changed for the learner; episodes and their scores stay real.

    Args:
        engine: One that says how many lives are left.
        episodic_life: A lost life is `terminated`, and an episode starts behind it, but the game goes on. The last one
            ends it anyway.
        life_starts: A lost life ends nothing, but an episode starts behind it: in whole games a policy with a memory
            forgets where it has learned to, with `episodic_life`.
        clip_rewards: Only the sign of a reward is left.
        log_rewards: sign(r) log(1 + |r|) takes the place of a reward r (Hester et al., 2018, experimental setup).
        fires: Press FIRE where a game begins and after a lost life, for games that stand still until then. Nobody
            learns from these steps: they are `bogus`, what the agent wants to do is not done, and the episode starts
            behind them. What they bring counts for the score, but at a game's start, which is before its first step.

                lives             5    5    4    4    4    4    4
                told              a1   a2   a3   0    1    2    a4       a3 loses a life; 0, 1, 2 are FIRED
                bogus             .    .    .    x    x    x    .
                terminated        .    .    x                   .        with `episodic_life`
                starts            .    .    .    .    .    x    .
    """

    num_envs: int
    layout: Layout
    label: str
    single_action_space: Any
    metadata: dict[str, Any]

    def __init__(
        self,
        engine: Engine,
        *,
        episodic_life: bool = False,
        life_starts: bool = False,
        clip_rewards: bool = False,
        log_rewards: bool = False,
        fires: bool = False,
    ) -> None:
        self._engine, self._episodic_life, self._life_starts = engine, episodic_life, episodic_life or life_starts
        self._clip_rewards, self._log_rewards = clip_rewards, log_rewards
        self.num_envs, self.layout, self.label = engine.num_envs, engine.layout, engine.label
        self.stacked: int = engine.stacked
        self.even: bool = engine.even and not fires
        self.allowing: Allowing | None = engine.allowing
        self.envs: list[Any] = getattr(engine, "envs", [])  # as `Stepper.environments` shows them
        self.single_action_space, self.metadata = engine.single_action_space, engine.metadata
        self._lives = np.zeros(
            self.num_envs, np.int64
        )  # after the last step; 0 before a game's first, so none is missed
        self._fires = fires
        self._left = np.zeros(self.num_envs, np.int64)  # of FIRED, still to do

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        obs = self._engine.reset(seed)
        for action in FIRED[-FIRED_FIRST:] if self._fires else ():
            obs = self._engine.step(np.full(self.num_envs, action)).obs
        self._lives[:], self._left[:] = 0, 0
        return obs

    def step(self, actions: np.ndarray) -> Outcome:
        """See Engine."""
        firing = self._left > 0
        outcome = self._engine.step(np.where(firing, np.array(FIRED)[-self._left], actions) if self._fires else actions)
        ended = outcome.terminated | outcome.truncated
        score, terminated, starts = outcome.reward, outcome.terminated, outcome.starts
        if self._fires:  # before a game's first observation nothing counts, as in frames without action
            score = np.where(firing & (self._lives == 0), 0.0, score)
        reward = self._learned(outcome.reward)
        if self._life_starts or self._fires:
            lost = self._lost_a_life(outcome, ended, firing)
            if self._life_starts:
                starts = starts | lost
            if self._episodic_life:
                terminated = terminated | lost
            if self._fires:
                starts, bogus = self._fire(outcome, lost, firing)
                outcome = outcome._replace(bogus=bogus)
        return outcome._replace(reward=reward, terminated=terminated, starts=starts, score=score, ended=ended)

    def _learned(self, reward: np.ndarray) -> np.ndarray:
        return learned_reward(reward, self._clip_rewards, self._log_rewards)

    def _fire(self, outcome: Outcome, lost: np.ndarray, firing: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Note what is left to press; return where episodes start, and which steps nobody learns from."""
        self._left = np.where(firing, self._left - 1, 0)
        self._left[lost], self._left[outcome.starts] = len(FIRED), FIRED_FIRST
        bogus = firing if outcome.bogus is None else firing | outcome.bogus
        return firing & (self._left == 0), bogus if bogus.any() else None

    def _lost_a_life(self, outcome: Outcome, ended: np.ndarray, firing: np.ndarray) -> np.ndarray:
        if outcome.lives is None:
            raise UsageError(f"{self.label} does not say how many lives are left. Leave episodic_life off.")
        # Some games go on for a few frames with no life left, before they end: that is one end, not two.
        lost = (outcome.lives > 0) & (outcome.lives < self._lives)
        begins = ended | outcome.starts | (firing & (self._lives == 0))
        self._lives = np.where(begins, 0, outcome.lives)
        return lost

    def reset_env(self, env: int, seed: int) -> Tree:
        """See Engine."""
        self._lives[env], self._left[env] = 0, FIRED_FIRST if self._fires else 0
        return self._engine.reset_env(env, seed)

    def render(self) -> np.ndarray | None:
        """See Engine."""
        return self._engine.render()

    def set_attr(self, name: str, value: Any) -> None:
        """See Engine."""
        self._engine.set_attr(name, value)

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        saved = self._engine.save()
        if saved is None:
            return None
        firing = {"firing": self._left.copy()} if self._fires else {}
        return {"engine": saved, "lives": self._lives.copy()} | firing

    def load(self, saved: dict[str, Any]) -> bool:
        """See Engine."""
        self._lives = np.array(saved["lives"])
        self._left = np.array(saved.get("firing", np.zeros(self.num_envs, np.int64)))
        return self._engine.load(saved["engine"])

    def close(self) -> None:
        """See Engine."""
        self._engine.close()
