"""SPEC P19, P20: what is learned from may differ from the game; games, episodes and scores may not."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from scripted_environments import Counting

from duetto.environments import Episode, VecEnv
from duetto.environments.engines import SyncEngine
from duetto.environments.learner_view import LearnerView
from duetto.errors import NonFiniteError, UsageError

# Rewards, and the lives left; the second step wins one.
GAME = [(5.0, 3), (-2.5, 4), (0.0, 3), (7.0, 3), (0.5, 1), (0.0, 0), (-3.0, 0)]


class Lives(gymnasium.Env):
    """Seven steps with three lives; observed is the number of the step. It ends one step after the last life."""

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
    """A line for each step: what it was from and to, the reward, T if terminated, S if `obs` starts an episode."""
    lines: list[str] = []
    episodes: list[Episode] = []
    while len(lines) < steps:
        row, ended = stepper.step(np.zeros(1, int))
        episodes += ended
        if not len(row.env):  # only reset itself
            lines[-1] += "S" * int(stepper.starts[0])
            continue
        flags = ("T" if row.terminated[0] else "") + ("S" if stepper.starts[0] else "")
        lines.append(f"{row.obs[0, 0]:.0f}{row.next_obs[0, 0]:.0f} {row.reward[0]:g} {flags}".strip())
    return lines, episodes


REAL = ["01 5", "12 -2.5", "23 0", "34 7", "45 0.5", "56 0", "67 -3 TS", "01 5"]
LIVES = ["01 5", "12 -2.5", "23 0 TS", "34 7", "45 0.5 TS", "56 0", "67 -3 TS", "01 5"]
SIGNS = ["01 1", "12 -1", "23 0", "34 1", "45 1", "56 0", "67 -1 TS", "01 1"]
BOTH = ["01 1", "12 -1", "23 0 TS", "34 1", "45 1 TS", "56 0", "67 -1 TS", "01 1"]


@pytest.mark.parametrize(
    ("episodic_life", "clip_rewards", "seen"),
    [(False, False, REAL), (True, False, LIVES), (False, True, SIGNS), (True, True, BOTH)],
)
def test_the_literal_game(episodic_life: bool, clip_rewards: bool, seen: list[str]) -> None:
    stepper = VecEnv(LearnerView(SyncEngine([Lives()]), episodic_life=episodic_life, clip_rewards=clip_rewards))
    stepper.reset(0)
    lines, episodes = play(stepper, 15)
    assert lines == seen[:7] * 2 + seen[7:]
    # 5 - 2.5 + 0 + 7 + 0.5 + 0 - 3 = 7, in 7 steps
    assert episodes == [Episode(0, 7.0, 7)] * 2


def test_whole_games_in_which_a_memory_ends_with_each_life() -> None:
    """As evaluations are of who learned with `episodic_life`."""
    stepper = VecEnv(LearnerView(SyncEngine([Lives()]), life_starts=True))
    stepper.reset(0)
    lines, episodes = play(stepper, 8)
    assert lines == [line.replace(" TS", " S") if line != REAL[6] else line for line in LIVES]
    assert episodes == [Episode(0, 7.0, 7)]


def test_rewards_on_a_log_scale_and_real_scores() -> None:
    stepper = VecEnv(LearnerView(SyncEngine([Lives()]), log_rewards=True))
    stepper.reset(0)
    lines, episodes = play(stepper, 7)
    # ln 6, -ln 3.5, 0, ln 8, ln 1.5, 0 and -ln 4, of GAME's 5, -2.5, 0, 7, 0.5, 0 and -3
    assert [line.split()[1] for line in lines] == ["1.79176", "-1.25276", "0", "2.07944", "0.405465", "0", "-1.38629"]
    assert episodes == [Episode(0, 7.0, 7)]


def test_lives_are_remembered_where_a_run_was_saved() -> None:
    stepper, resumed = (
        VecEnv(LearnerView(SyncEngine([Lives()]), episodic_life=True, clip_rewards=False)) for _ in range(2)
    )
    stepper.reset(0)
    play(stepper, 2)  # four lives; the next step loses one
    resumed.load_state_dict(stepper.state_dict())
    assert resumed.resumed_exactly
    assert play(resumed, 1)[0] == ["23 0 TS"]


def test_a_new_game_with_fewer_lives_has_lost_none() -> None:
    reset, truncated = (
        VecEnv(LearnerView(SyncEngine([env]), episodic_life=True, clip_rewards=False))
        for env in (Lives(), gymnasium.wrappers.TimeLimit(Lives(), 2))
    )
    for stepper in (reset, truncated):
        stepper.reset(0)
    assert play(truncated, 4)[0] == ["01 5", "12 -2.5 S"] * 2
    for begin_anew in (lambda: reset.reset_env(0, 1), lambda: reset.reset(0)):
        play(reset, 2)
        begin_anew()
        assert play(reset, 3)[0] == ["01 5", "12 -2.5", "23 0 TS"]
        reset.reset(0)


def test_an_infinite_score_is_found_though_its_sign_is_finite() -> None:
    stepper = VecEnv(LearnerView(SyncEngine([Lives(bad=np.inf)]), episodic_life=False, clip_rewards=True))
    stepper.reset(0)
    with pytest.raises(NonFiniteError, match=r"the reward is NaN or infinite \(inf\)"):
        stepper.step(np.zeros(1, int))


def test_an_environment_without_lives_has_none_to_lose() -> None:
    stepper = VecEnv(LearnerView(SyncEngine([Counting()]), episodic_life=True, clip_rewards=False))
    stepper.reset(0)
    with pytest.raises(UsageError, match="Counting reports no lives"):
        stepper.step(np.zeros(1, int))


class Serving(gymnasium.Env):
    """Stands still until action 1; then the ball is in play for three steps of reward 1 and lost with the next, thrice.

    Observed is the number of the step, and `told` says what was done.
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


SERVED = ["23 1", "34 0 TS", "78 1", "89 0 TS", "1213 1", "1314 0 TS"]


def test_fire_is_pressed_where_a_game_begins_and_after_each_life() -> None:
    env = Serving()
    stepper = VecEnv(LearnerView(SyncEngine([env]), episodic_life=True, clip_rewards=False, fires=True))
    stepper.reset(0)
    assert env.told == [1, 2]
    assert stepper.obs[0, 0] == 2
    lines, episodes = play(stepper, 13)
    assert lines == [*SERVED, *SERVED, "23 1"]
    # of each game what the agent did, and FIRE and the action behind it after two lives: 1 + 3 + 3
    assert episodes == [Episode(0, 7.0, 6)] * 2
    game = [1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0]
    assert env.told == game * 2 + [1, 2, 0]


def test_without_fire_a_game_stands_still_for_ever() -> None:
    env = Serving()
    stepper = VecEnv(LearnerView(SyncEngine([env]), episodic_life=True, clip_rewards=False))
    stepper.reset(0)
    assert not any("T" in line for line in play(stepper, 40)[0])
    assert env.lives == 3


def test_whole_games_are_played_with_fire_too() -> None:
    """As evaluations do: a life is no end, but the game continues behind it."""
    stepper = VecEnv(LearnerView(SyncEngine([Serving()]), episodic_life=False, clip_rewards=False, fires=True))
    stepper.reset(0)
    lines, episodes = play(stepper, 6)
    assert lines == ["23 1", "34 0S", "78 1", "89 0S", "1213 1", "1314 0 T"]
    assert episodes == [Episode(0, 7.0, 6)]
    stepper.reset_env(0, 1)  # then it is pressed in the first steps instead of before them
    assert stepper.step(np.zeros(1, int))[0].env.size == 0
    assert not stepper.starts[0]
    assert stepper.step(np.zeros(1, int))[0].env.size == 0
    assert stepper.starts[0]
    assert play(stepper, 6) == (["23 1", "34 0S", "78 1", "89 0S", "1213 1", "1314 0 T"], [Episode(0, 7.0, 6)])


@pytest.mark.parametrize("steps", range(2, 6))
def test_fire_is_half_pressed_where_a_run_was_saved(steps: int) -> None:
    saving, resumed = (
        VecEnv(LearnerView(SyncEngine([Serving()]), episodic_life=True, clip_rewards=False, fires=True))
        for _ in range(2)
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
