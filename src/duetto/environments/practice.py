"""What an agent learns from, where that differs from the game and its score."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.environments.engines import Engine, Outcome
from duetto.environments.trees import Tree
from duetto.errors import UsageError


class Practice(Engine):
    """An engine whose rewards and terminations are changed for the learner; episodes and their scores stay real.

    Args:
        engine: One that says how many lives are left.
        episodic_life: A lost life is `terminated`, and an episode starts behind it, but the game goes on. The last one
            ends it anyway.
        clip_rewards: Only the sign of a reward is left.
    """

    def __init__(self, engine: Engine, *, episodic_life: bool, clip_rewards: bool) -> None:
        self._engine, self._episodic_life, self._clip_rewards = engine, episodic_life, clip_rewards
        self.num_envs, self.layout, self.label = engine.num_envs, engine.layout, engine.label
        self.stacked = engine.stacked
        self.envs = getattr(engine, "envs", [])  # as `Stepper.environments` shows them
        self.single_action_space, self.metadata = engine.single_action_space, engine.metadata
        self._lives = np.zeros(self.num_envs, np.int64)  # after the last step; 0 where a game began, so none is missed

    def reset(self, seed: int | None) -> Tree:
        """See Engine."""
        self._lives[:] = 0
        return self._engine.reset(seed)

    def step(self, actions: np.ndarray) -> Outcome:
        """See Engine."""
        outcome = self._engine.step(actions)
        ended = outcome.terminated | outcome.truncated
        score, reward, terminated, starts = outcome.reward, outcome.reward, outcome.terminated, outcome.starts
        if self._clip_rewards:
            reward = np.sign(score)
        if self._episodic_life:
            lost = self._lost_a_life(outcome, ended)
            terminated, starts = terminated | lost, starts | lost
        return outcome._replace(reward=reward, terminated=terminated, starts=starts, score=score, ended=ended)

    def _lost_a_life(self, outcome: Outcome, ended: np.ndarray) -> np.ndarray:
        if outcome.lives is None:
            raise UsageError(f"{self.label} does not say how many lives are left. Leave episodic_life off.")
        # Some games go on for a few frames with no life left, before they end: that is one end, not two.
        lost = (outcome.lives > 0) & (outcome.lives < self._lives)
        self._lives = np.where(ended, 0, outcome.lives)
        return lost

    def reset_env(self, env: int, seed: int) -> Tree:
        """See Engine."""
        self._lives[env] = 0
        return self._engine.reset_env(env, seed)

    def render(self) -> np.ndarray | None:
        """See Engine."""
        return self._engine.render()

    def save(self) -> dict[str, Any] | None:
        """See Engine."""
        saved = self._engine.save()
        return None if saved is None else {"engine": saved, "lives": self._lives.copy()}

    def load(self, saved: dict[str, Any]) -> bool:
        """See Engine."""
        self._lives = np.array(saved["lives"])
        return self._engine.load(saved["engine"])

    def close(self) -> None:
        """See Engine."""
        self._engine.close()
