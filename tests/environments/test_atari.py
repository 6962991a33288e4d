"""Atari: ale-py's vector environment compared with Gymnasium's wrappers and with SPEC P19 to P21."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from resume_checks import check_continues, record

from duetto.environments import AtariOptions, VecEnv, atari_native, make, make_eval
from duetto.errors import UsageError
from duetto.install_hint import install

pytest.importorskip("ale_py")
BREAKOUT, STEADY = "ALE/Breakout-v5", "BreakoutNoFrameskip-v4"  # with and without sticky actions


def random_actions(stepper: VecEnv, steps: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [stepper.sample_actions(random) for _ in range(steps)]


def gymnasium_seed(seed: int) -> int:
    """Return the seed that Gymnasium's Atari environment passes to the emulator."""
    return int(np.random.SeedSequence(seed).generate_state(2)[1].astype(np.int32))


@pytest.mark.parametrize(
    ("environment", "options", "shape", "games"),
    [
        (BREAKOUT, {}, (4, 84, 84), 1),
        (STEADY, {"size": 40, "stack": 2}, (2, 40, 40), 1),
        ("ALE/Pong-v5", {"frame_skip": 1, "max_frames": 100, "sticky_actions": 0.5}, (4, 84, 84), 3),
        (BREAKOUT, {"fire_reset": "lives", "episodic_life": True}, (4, 84, 84), 1),
        ("ALE/MsPacman-v5", {"fire_reset": "lives", "episodic_life": True, "max_frames": 500}, (4, 84, 84), 2),
    ],
)
def test_native_and_gymnasium_engines_play_identical_games(
    environment: str, options: dict[str, Any], shape: tuple[int, ...], games: int
) -> None:
    pytest.importorskip("cv2")
    # Without no-op starts, which the engines draw differently, seeds affect only sticky actions.
    kwargs = {"noop_max": 0} | options
    native = make(environment, kwargs=kwargs)
    reference = make(environment, kwargs=kwargs, render_mode="rgb_array")
    seed = next(seed for seed in range(9) if gymnasium_seed(seed) > 0)
    native.reset(gymnasium_seed(seed))
    reference.reset(seed)
    assert native.observation_space == reference.observation_space
    assert native.observation_space.shape == shape
    assert native.action_space == reference.action_space
    assert native.stacked == reference.stacked == AtariOptions.of(options).stack
    assert native.render_fps == reference.render_fps == 60 / AtariOptions.of(options).frame_skip
    finished = 0
    for action in random_actions(native, 330):
        assert np.array_equal(native.obs, reference.obs)
        (row, ended), (other, other_ended) = native.step(action), reference.step(action)
        assert ended == other_ended
        assert all(np.array_equal(one, two) for one, two in zip(row, other, strict=True))
        finished += len(ended)
    assert finished >= games


def test_evaluation_plays_whole_games_with_unclipped_scores() -> None:
    """Rewards stay clipped, because a recurrent policy observes them."""
    kwargs = {"episodic_life": True, "clip_rewards": True, "stack": 2, "noop_max": 0}
    game = "ALE/MsPacman-v5"  # ten points a pellet
    stepper, without = make_eval(game, kwargs=kwargs), make_eval(game, kwargs={"stack": 2, "noop_max": 0})
    assert stepper.observation_space.shape == (2, 84, 84)
    for one in (stepper, without):
        one.reset(0)
    games, highest = 0, 0.0
    for action in random_actions(stepper, 1000):
        (row, ended), (other, other_ended) = stepper.step(action), without.step(action)
        assert np.array_equal(row.reward, np.sign(other.reward))
        played = zip(row._replace(reward=other.reward), other, strict=True)
        assert all(np.array_equal(part, twin) for part, twin in played)
        assert ended == other_ended
        games, highest = games + len(ended), max(highest, other.reward.max())
    assert games
    assert highest >= 10


def test_rendered_frames_show_the_whole_screen() -> None:
    pytest.importorskip("cv2")
    stepper = make(BREAKOUT, render_mode="rgb_array")
    stepper.reset(0)
    frame = stepper.render()
    assert (frame.shape, frame.dtype) == ((210, 160, 3), np.uint8)
    assert (frame.max(axis=2) > frame.min(axis=2)).any()  # in color
    assert stepper.observation_space.shape == (4, 84, 84)
    with pytest.raises(UsageError, match="rgb_array"):
        make(BREAKOUT).render()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frameskip": 4}, "no option 'frameskip'. Did you mean 'frame_skip'"),
        ({"size": "84"}, "size is '84'; it must be a whole number"),
        (
            {"clip_rewards": True, "log_rewards": True},
            "clip_rewards and log_rewards are both on. Leave one of them off",
        ),
        ({"fire_reset": "life"}, "fire_reset is 'life'. Give true, false or lives"),
        ({"fire_reset": "lives"}, "needs episodic_life.*Set episodic_life to true, or fire_reset to true"),
        ({"stack": 0}, "stack is 0; it must be at least 1"),
        ({"sticky_actions": 1.0}, "Give a probability"),
    ],
)
def test_invalid_atari_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(BREAKOUT, kwargs=options)


@pytest.mark.parametrize("name", ["Pong-v4", "PongDeterministic-v4", "Pong-ramNoFrameskip-v4"])
def test_old_atari_id_error_suggests_current_ids(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is an Atari id .* Use ALE/Pong-v5 .* or PongNoFrameskip-v4 "):
        make(name)


def test_unknown_atari_games_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no environment ALE/Breakot-v5. Did you mean ALE/Breakout-v5"):
        make("ALE/Breakot-v5")
    with pytest.raises(UsageError, match=r"no environment ALE/Breakout-v4. Did you mean ALE/Breakout-v5"):
        make("ALE/Breakout-v4")
    assert make("ale_py:ALE/Pong-v5").name == "ALE/Pong-v5"


@pytest.mark.parametrize("mode", [None, "rgb_array"])
def test_missing_rom_is_reported(mode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(UsageError, match=r"ALE/Pong-v5 cannot be made: FileNotFoundError.*pong\.bin"):
        make("ALE/Pong-v5", render_mode=mode)


def test_missing_opencv_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(UsageError, match=rf"ALE/Pong-v5 needs the Atari .* Install: {re.escape(install('atari'))}"):
        make("ALE/Pong-v5", render_mode="rgb_array")


# ------------------------------------------------------------------------------------------- resume
def test_eight_games_at_different_points_resume_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_native, "LONGEST", 130)  # so only some games start with a new seed
    kwargs = {"episodic_life": True, "clip_rewards": True, "max_frames": 600, "fire_reset": "lives"}
    saving, resumed = (make(BREAKOUT, num_envs=8, kwargs=kwargs) for _ in range(2))
    random = np.random.default_rng(0)
    saving.reset(3)
    for env in range(7):
        record(saving, random, 15)
        saving.reset_env(env, 100 + env)
    record(saving, random, 110)
    saving.reset_env(0, 200)  # environment 0 takes no step before the state is saved
    assert len(set(saving._lengths.tolist())) >= 7
    state, expected = check_continues(saving, resumed, random, 160)
    told = [tape["actions"] for tape in state["environments"]["engine"].values()]
    assert 1 <= sum(bool((one == atari_native.RESET).any()) for one in told) <= 7
    assert sum(len(ended) for _, ended in expected) >= 8
    assert sum(int(row[6].sum()) for row, _ in expected) >= 2  # truncated


def test_replay_with_other_frames_starts_a_new_episode() -> None:
    saving, resumed, fresh = (make(BREAKOUT, num_envs=2) for _ in range(3))
    saving.reset(0)
    record(saving, np.random.default_rng(0), 40)
    state = saving.state_dict()
    tape: dict[str, Any] = state["environments"]["1"]
    tape["actions"] = np.zeros_like(tape["actions"])
    resumed.load_state_dict(state)
    fresh.load_state_dict(state | {"environments": None})
    assert resumed.restored.tolist() == [True, False]
    assert resumed.starts.tolist() == [False, True]
    assert resumed.steps == 40
    assert np.array_equal(resumed.obs[0], saving.obs[0])
    assert np.array_equal(resumed.obs[1], fresh.obs[1])
    rows = [stepper.step(np.ones(2, int))[0].next_obs for stepper in (saving, resumed, fresh)]
    assert np.array_equal(rows[1][0], rows[0][0])
    assert np.array_equal(rows[1][1], rows[2][1])
