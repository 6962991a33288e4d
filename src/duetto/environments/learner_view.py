"""Change the rewards and episode ends that an agent learns from in Atari games; scores stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from duetto.environments.atari import AtariOptions
from duetto.environments.engines import Engine, StepResult
from duetto.environments.obs_tree import Tree

FIRED = (0, 1, 2)  # actions after a lost life, one step each: no-op, FIRE and action 2, as in OpenAI Baselines
FIRED_FIRST = 2  # at a game's start, which already has no-op frames, only the last two of these actions


def learned_reward(reward: np.ndarray, clip: bool, log: bool) -> np.ndarray:
    """Return the rewards to learn from: sign(r) log(1 + |r|) with `log`, sign(r) with `clip`, else r."""
    if log:
        return np.sign(reward) * np.log1p(np.abs(reward))
    return np.sign(reward) if clip else reward


class LearnerView(Engine):
    """A wrapper of an engine that changes the learner's rewards and terminations, but not the games and their scores.

    Args:
        engine: An engine that reports lives, and starts the next game in the step that ends a game.
        options: `clip_rewards` replaces a reward by its sign, `log_rewards` a reward r by sign(r) log(1 + |r|) (Hester
            et al., 2018, experimental setup). With `episodic_life`, a lost life sets `starts`; the game continues.
        to_learn: Whether a lost life with `episodic_life` also sets `terminated`. If not, the agent plays whole games,
            but a recurrent policy resets its hidden state at the same points as in training.
        fires: Whether to press FIRE at a game's start and after a lost life, for games that wait for it. These steps
            are `reset_only`: they replace the agent's actions and give no transitions. The last of them, not the lost
            life, sets `starts`. Their rewards count for the score, except before a game's first observation.

                lives             5    5    4    4    4    4    4
                action            a1   a2   a3   0    1    2    a4       a3 loses a life; 0, 1, 2 are `FIRED`
                reset_only        .    .    .    x    x    x    .
                terminated        .    .    x                   .        with `to_learn`
                starts            .    .    .    .    .    x    .
    """

    def __init__(self, engine: Engine, options: AtariOptions, to_learn: bool, fires: bool) -> None:
        self._engine, self._options, self._to_learn = engine, options, to_learn
        for attribute in (*Engine.__annotations__, "render", "set_attr", "call", "close"):  # from the wrapped engine
            setattr(self, attribute, getattr(engine, attribute))
        self._lives = np.zeros(self.num_envs, np.int64)  # after the last step; 0 before a game's first step
        self._fires = fires
        self._left = np.zeros(self.num_envs, np.int64)  # number of remaining FIRED steps

    def reset(self, seed: int) -> Tree:
        """Start a game in every environment; with `fires`, press FIRE."""
        obs = self._engine.reset(seed)
        for action in FIRED[-FIRED_FIRST:] if self._fires else ():
            obs = self._engine.step(np.full(self.num_envs, action)).obs
        self._lives[:], self._left[:] = 0, 0
        return obs

    def step(self, actions: np.ndarray) -> StepResult:
        """Step the games; see the class for rewards and ends."""
        firing = self._left > 0
        outcome = self._engine.step(np.where(firing, np.array(FIRED)[-self._left], actions) if self._fires else actions)
        ended, starts, reset_only = outcome.starts, outcome.starts, None
        score, terminated = outcome.reward, outcome.terminated
        reward = learned_reward(outcome.reward, self._options.clip_rewards, self._options.log_rewards)
        if self._options.episodic_life or self._fires:
            before_game = firing & (self._lives == 0)
            lives: Any = outcome.lives
            # Some games continue for a few frames after the last life: this life must not count as a second end.
            lost = (lives > 0) & (lives < self._lives)
            self._lives = np.where(ended | before_game, 0, lives)
            if self._options.episodic_life:
                starts = starts | lost
            if self._options.episodic_life and self._to_learn:
                terminated = terminated | lost
            if self._fires:
                score = np.where(before_game, 0.0, score)  # like no-ops, not part of the score
                self._left = np.where(firing, self._left - 1, 0)
                self._left[lost], self._left[ended] = len(FIRED), FIRED_FIRST
                starts, reset_only = firing & (self._left == 0), firing if firing.any() else None
        changed = {"reward": reward, "terminated": terminated, "starts": starts, "reset_only": reset_only}
        return outcome._replace(**changed, score=score, ended=ended)

    def reset_env(self, env: int, seed: int) -> Tree | None:
        """Start a new game in one environment."""
        self._lives[env], self._left[env] = 0, FIRED_FIRST if self._fires else 0
        return self._engine.reset_env(env, seed)

    def save(self) -> dict[str, Any] | None:
        """Return the state of the games, their lives and the number of remaining `FIRED` steps."""
        return {"engine": self._engine.save(), "lives": self._lives.copy(), "firing": self._left.copy()}

    @override
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        obs, why = self._engine.load(saved["engine"], obs, seed)
        anew = np.array(why) != ""
        self._lives = np.where(anew, 0, saved["lives"])
        self._left = np.where(anew, FIRED_FIRST if self._fires else 0, saved["firing"])
        return obs, why
