"""SPEC P19, P20: LearnerView changes what the agent learns from, but not games, episodes and scores."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from duetto.environments import Episode, VecEnv
from duetto.environments.atari import AtariOptions
from duetto.environments.engines import SyncEngine
from duetto.environments.learner_view import LearnerView
from duetto.errors import NonFiniteError

# The reward and remaining lives of each step; the second step gains a life.
GAME = [(5.0, 3), (-2.5, 4), (0.0, 3), (7.0, 3), (0.5, 1), (0.0, 0), (-3.0, 0)]


class LivesGame(gymnasium.Env):
    """Game of seven steps and three lives that observes the step number and ends one step after the last life."""

    def __init__(self, bad: float | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.time, self.bad = 0, bad

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {"lives": 3}

    def step(self, action: Any) -> Any:
        reward, lives = GAME[self.time]
        self.time += 1
        reward = reward if self.bad is None else self.bad
        return np.full(1, self.time, np.float32), reward, self.time == len(GAME), False, {"lives": lives}

    def state_dict(self) -> dict[str, Any]:
        return {"time": self.time}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.time = state["time"]


def play(stepper: VecEnv, steps: int) -> tuple[list[str], list[Episode]]:
    """Return a line per step (from, to, reward, T if terminated, S if `obs` starts an episode) and the episodes."""
    lines: list[str] = []
    episodes: list[Episode] = []
    while len(lines) < steps:
        row, ended = stepper.step(np.zeros(1, int))
        episodes += ended
        if not len(row.env):  # the environment only reset itself
            lines[-1] += "S" * int(stepper.starts[0])
            continue
        flags = ("T" if row.terminated[0] else "") + ("S" if stepper.starts[0] else "")
        lines.append(f"{row.obs[0, 0]:.0f}{row.next_obs[0, 0]:.0f} {row.reward[0]:g} {flags}".strip())
    return lines, episodes


UNCHANGED = ["01 5", "12 -2.5", "23 0", "34 7", "45 0.5", "56 0", "67 -3 TS", "01 5"]
EPISODIC_LIFE = ["01 5", "12 -2.5", "23 0 TS", "34 7", "45 0.5 TS", "56 0", "67 -3 TS", "01 5"]
CLIPPED = ["01 1", "12 -1", "23 0", "34 1", "45 1", "56 0", "67 -1 TS", "01 1"]
EPISODIC_LIFE_CLIPPED = ["01 1", "12 -1", "23 0 TS", "34 1", "45 1 TS", "56 0", "67 -1 TS", "01 1"]
# ln 6, -ln 3.5, 0, ln 8, ln 1.5, 0 and -ln 4
LOG_REWARDS = ["01 1.79176", "12 -1.25276", "23 0", "34 2.07944", "45 0.405465", "56 0", "67 -1.38629 TS", "01 1.79176"]


def view(env: gymnasium.Env, to_learn: bool = True, fires: bool = False, **options: bool) -> LearnerView:
    return LearnerView(SyncEngine([env]), AtariOptions(**options), to_learn, fires)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, UNCHANGED),
        ({"episodic_life": True}, EPISODIC_LIFE),
        ({"clip_rewards": True}, CLIPPED),
        ({"episodic_life": True, "clip_rewards": True}, EPISODIC_LIFE_CLIPPED),
        ({"log_rewards": True}, LOG_REWARDS),
    ],
)
def test_learner_view_changes_steps_but_not_scores(options: dict[str, bool], seen: list[str]) -> None:
    stepper = VecEnv(view(LivesGame(), **options))
    stepper.reset(0)
    lines, episodes = play(stepper, 15)
    assert lines == seen[:7] * 2 + seen[7:]
    # 5 - 2.5 + 0 + 7 + 0.5 + 0 - 3 = 7, in 7 steps
    assert episodes == [Episode(0, 7.0, 7)] * 2


def test_life_starts_reset_memory_without_ending_the_episode() -> None:
    """As in evaluations of an agent trained with `episodic_life`."""
    stepper = VecEnv(view(LivesGame(), to_learn=False, episodic_life=True))
    stepper.reset(0)
    lines, episodes = play(stepper, 8)
    assert lines == [line.replace(" TS", " S") if line != UNCHANGED[6] else line for line in EPISODIC_LIFE]
    assert episodes == [Episode(0, 7.0, 7)]


def test_resume_restores_the_number_of_lives() -> None:
    stepper, resumed = (VecEnv(view(LivesGame(), episodic_life=True, clip_rewards=False)) for _ in range(2))
    stepper.reset(0)
    play(stepper, 2)  # four lives; the next step loses one
    resumed.load_state_dict(stepper.state_dict())
    assert resumed.resumed_exactly
    assert play(resumed, 1)[0] == ["23 0 TS"]


def test_infinite_reward_is_reported_despite_clip_rewards() -> None:
    stepper = VecEnv(view(LivesGame(bad=np.inf), episodic_life=False, clip_rewards=True))
    stepper.reset(0)
    with pytest.raises(NonFiniteError, match=r"the reward is NaN or infinite \(inf\)"):
        stepper.step(np.zeros(1, int))


class FireToServe(gymnasium.Env):
    """Wait for action 1; then the ball is in play for three steps of reward 1 and lost with the next. Three lives.

    Observes the step number; `told` records the actions.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.told: list[int] = []
        self.time, self.ball, self.lives = 0, 0, 3

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time, self.ball, self.lives = 0, 0, 3
        return np.zeros(1, np.float32), {"lives": 3}

    def step(self, action: Any) -> Any:
        self.told.append(int(action))
        self.time += 1
        self.ball = (self.ball + 1) % 4 if self.ball or action == 1 else 0
        lost = not self.ball and self.time > 1 and self.served
        self.served = bool(self.ball)
        self.lives -= lost
        return np.full(1, self.time, np.float32), float(self.ball > 0), not self.lives, False, {"lives": self.lives}

    served = False

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("time", "ball", "lives", "served")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


SERVED_GAME = ["23 1", "34 0 TS", "78 1", "89 0 TS", "1213 1", "1314 0 TS"]


def test_fire_is_pressed_at_start_and_after_each_life() -> None:
    env = FireToServe()
    stepper = VecEnv(view(env, episodic_life=True, clip_rewards=False, fires=True))
    stepper.reset(0)
    assert env.told == [1, 2]
    assert stepper.obs[0, 0] == 2
    lines, episodes = play(stepper, 13)
    assert lines == [*SERVED_GAME, *SERVED_GAME, "23 1"]
    # reward: 1 in the first life; 3 in each other life, with those of FIRE and the next action
    assert episodes == [Episode(0, 7.0, 6)] * 2
    game = [1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0]
    assert env.told == game * 2 + [1, 2, 0]


@pytest.mark.parametrize("steps", [3, 4])
def test_resume_continues_an_unfinished_fire_press(steps: int) -> None:
    saving, resumed = (
        VecEnv(view(FireToServe(), episodic_life=True, clip_rewards=False, fires=True)) for _ in range(2)
    )
    saving.reset(0)
    for _ in range(steps):
        saving.step(np.zeros(1, int))
    resumed.load_state_dict(saving.state_dict())
    assert resumed.resumed_exactly
    for _ in range(8):
        (row, ended), (other, other_ended) = saving.step(np.zeros(1, int)), resumed.step(np.zeros(1, int))
        assert all(np.array_equal(one, two) for one, two in zip(row, other, strict=True))
        assert (ended, saving.starts.tolist()) == (other_ended, resumed.starts.tolist())
