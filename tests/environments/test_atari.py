"""Atari: ale-py's vector environment against Gymnasium's wrappers, and both against SPEC P19 to P21."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from resuming import check_continues, check_resume, record

from duetto.environments import AtariOptions, VecEnv, atari_native, make, make_eval
from duetto.errors import UsageError
from duetto.install_hint import install

pytest.importorskip("ale_py")
BREAKOUT, STEADY = "ALE/Breakout-v5", "BreakoutNoFrameskip-v4"  # with sticky actions and without


def actions(stepper: VecEnv, steps: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [stepper.sample_actions(random) for _ in range(steps)]


def gymnasium_seed(seed: int) -> int:
    """What Gymnasium's Atari environment, reset with `seed`, gives to the emulator."""
    return int(np.random.SeedSequence(seed).generate_state(2)[1].astype(np.int32))


@pytest.mark.parametrize(
    ("environment", "options", "shape", "games"),
    [
        (BREAKOUT, {}, (4, 84, 84), 1),
        (STEADY, {"size": 40, "stack": 2}, (2, 40, 40), 1),
        ("ALE/Seaquest-v5", {"frame_skip": 5, "fire_reset": False}, (4, 84, 84), 1),
        ("ALE/Pong-v5", {"frame_skip": 1, "max_frames": 100, "sticky_actions": 0.5}, (4, 84, 84), 3),
        ("ALE/Pong-v5", {"full_action_space": True, "max_frames": 400}, (4, 84, 84), 3),
        (BREAKOUT, {"fire_reset": "lives", "episodic_life": True}, (4, 84, 84), 1),
        ("ALE/MsPacman-v5", {"fire_reset": "lives", "episodic_life": True, "max_frames": 500}, (4, 84, 84), 2),
    ],
)
def test_both_engines_play_the_same_games(
    environment: str, options: dict[str, Any], shape: tuple[int, ...], games: int
) -> None:
    pytest.importorskip("cv2")
    # Without frames of inaction, whose number the engines draw otherwise, seeds decide on sticky actions only.
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
    for action in actions(native, 330):
        assert np.array_equal(native.obs, reference.obs)
        (row, ended), (other, other_ended) = native.step(action), reference.step(action)
        assert ended == other_ended
        assert all(np.array_equal(one, two) for one, two in zip(row, other, strict=True))
        finished += len(ended)
    assert finished >= games


def observed(environment: str, seed: int, **options: Any) -> np.ndarray:
    stepper = make(environment, kwargs={"noop_max": 0} | options)
    stepper.reset(seed)
    return np.stack([stepper.step(action)[0].next_obs for action in actions(stepper, 60)])


def test_sticky_actions_are_those_of_the_id_unless_given() -> None:
    assert np.array_equal(observed(STEADY, 1), observed(STEADY, 2))
    assert not np.array_equal(observed(BREAKOUT, 1), observed(BREAKOUT, 2))
    assert np.array_equal(observed(BREAKOUT, 1), observed(STEADY, 1, sticky_actions=0.25))
    assert np.array_equal(observed(STEADY, 1), observed(BREAKOUT, 2, sticky_actions=0))


def test_a_game_that_is_truncated_shows_its_last_frames() -> None:
    # 50 frames are 12.5 steps: the 13th is the last.
    limited, free = (make(BREAKOUT, kwargs=options) for options in ({"max_frames": 50}, {}))
    for stepper in (limited, free):
        stepper.reset(3)
    for step, action in enumerate(actions(free, 40)):
        row, ended = limited.step(action)
        assert row.truncated[0] == (step % 13 == 12)
        assert not row.terminated[0]
        assert [episode.length for episode in ended] == [13] * (step % 13 == 12)
        assert limited.starts[0] == (step % 13 == 12)
        if step < 13:
            assert np.array_equal(row.next_obs, free.step(action)[0].next_obs)


def test_the_final_observation_is_of_the_game_that_is_over() -> None:
    stepper = make(BREAKOUT)
    stepper.reset(0)
    last, over = stepper.obs, False
    for action in actions(stepper, 400):
        row, _ = stepper.step(action)
        assert np.array_equal(row.obs, last)
        assert np.array_equal(row.next_obs[0, :3], row.obs[0, 1:])  # three frames of the same game
        if row.terminated[0]:
            over = True
            assert row.next_obs[0, 0].any()
            assert stepper.starts[0]
            assert not stepper.obs[0, :3].any()  # a game starts with a black past
            assert stepper.obs[0, 3].any()
        last = stepper.obs
    assert over


def test_a_games_rewards_on_a_log_scale() -> None:
    """Evaluations' too, which a recurrent policy sees; scores are the game's."""
    options: dict[str, Any] = {"num_envs": 4, "kwargs": {"log_rewards": True}}
    real, *scaled = make(BREAKOUT, num_envs=4), make(BREAKOUT, **options), make_eval(BREAKOUT, **options)
    for stepper in (real, *scaled):
        stepper.reset(5)
    won = 0.0
    for action in actions(real, 200):
        reward = real.step(action)[0].reward
        won += reward.sum()
        for stepper in scaled:
            assert np.allclose(stepper.step(action)[0].reward, np.log1p(reward))
    assert won > 0


@pytest.mark.parametrize("play", [make, make_eval])
def test_breakout_does_not_stand_still_after_a_lost_life(play: Callable[..., VecEnv]) -> None:
    """Without an action of the agent's own the ball, drawn between bricks and paddle, comes into play in every life."""
    stepper = play(STEADY, kwargs={"fire_reset": "lives", "episodic_life": True, "noop_max": 0})
    stepper.reset(0)
    balls, lives = [], 0
    while not (ended := stepper.step(np.zeros(1, int))[1]):
        balls.append(int((stepper.obs[0, -1, 40:75, 8:76] > 0).any()))
        lives += int(stepper.starts[0])
        assert len(balls) < 500
    assert lives == 4  # and the first
    assert sum(balls) >= 5 * 10
    assert 60 <= ended[0].length < len(balls)  # FIRE is no step of the agent's
    kwargs = {"episodic_life": True, "noop_max": 0}
    still = play(STEADY, kwargs=kwargs)
    still.reset(0)
    pictures = [still.step(np.zeros(1, int))[0].next_obs for _ in range(200)]
    assert np.array_equal(pictures[60], pictures[-1])


def test_games_without_fire_do_not_get_it() -> None:
    assert make("ALE/Breakout-v5", kwargs={"fire_reset": "lives", "episodic_life": True}).engine._fires
    assert not make("ALE/MsPacman-v5", kwargs={"fire_reset": "lives", "episodic_life": True}).engine._fires
    assert make("ALE/MsPacman-v5", kwargs={
        "fire_reset": "lives", "episodic_life": True, "full_action_space": True
    }).engine._fires  # fmt: skip


def test_evaluations_are_of_whole_games_and_real_scores() -> None:
    """Rewards are those that a recurrent policy has learned to see."""
    kwargs = {"episodic_life": True, "clip_rewards": True, "stack": 2, "noop_max": 0}
    game = "ALE/MsPacman-v5"  # ten points a pellet
    stepper, without = make_eval(game, kwargs=kwargs), make_eval(game, kwargs={"stack": 2, "noop_max": 0})
    assert stepper.observation_space.shape == (2, 84, 84)
    for one in (stepper, without):
        one.reset(0)
    games, highest = 0, 0.0
    for action in actions(stepper, 1000):
        (row, ended), (other, other_ended) = stepper.step(action), without.step(action)
        assert np.array_equal(row.reward, np.sign(other.reward))
        played = zip(row._replace(reward=other.reward), other, strict=True)
        assert all(np.array_equal(part, twin) for part, twin in played)
        assert ended == other_ended
        games, highest = games + len(ended), max(highest, other.reward.max())
    assert games
    assert highest >= 10


def test_nothing_returned_shares_memory() -> None:
    for options in ({}, {"episodic_life": True, "clip_rewards": True}):
        stepper, twin = (make(BREAKOUT, num_envs=2, kwargs=options | {"max_frames": 20}) for _ in range(2))
        for one in (stepper, twin):
            one.reset(0)
        kept: list[tuple[Any, list[np.ndarray]]] = []
        for action in actions(stepper, 14):
            stepper.obs[...] = 7
            row, _ = stepper.step(action)
            kept.append((row, [np.copy(part) for part in twin.step(action)[0]]))
        for row, copies in kept:
            assert all(np.array_equal(part, copied) for part, copied in zip(row, copies, strict=True))
        arrays = [part for row, _ in kept for part in (row.obs, row.next_obs)] + [stepper.obs, stepper._obs]
        assert not any(np.may_share_memory(one, two) for i, one in enumerate(arrays) for two in arrays[:i])


def test_each_environment_has_its_own_seed() -> None:
    three = make(BREAKOUT, num_envs=3)
    three.reset(7)
    three.step(np.zeros(3, int))
    three.reset_env(1, 42)
    alone = make(BREAKOUT)
    for env, seed in ((0, 7), (1, 42), (2, 9)):
        alone.reset(seed)
        if env != 1:
            alone.step(np.zeros(1, int))
        assert np.array_equal(alone.obs[0], three.obs[env])
    for seed in (0, None, 2**40):
        three.reset(seed)
    assert not np.array_equal(three.obs[0], three.obs[1]) or not np.array_equal(three.obs[0], three.obs[2])


def test_pictures_are_of_the_whole_screen() -> None:
    pytest.importorskip("cv2")
    stepper = make(BREAKOUT, render_mode="rgb_array")
    stepper.reset(0)
    frame = stepper.render()
    assert (frame.shape, frame.dtype) == ((210, 160, 3), np.uint8)
    assert (frame.max(axis=2) > frame.min(axis=2)).any()  # coloured
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
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(BREAKOUT, kwargs=options)


def test_what_an_engine_cannot_do() -> None:
    with pytest.raises(UsageError, match="steps all its environments at once"):
        make(BREAKOUT, vectorization="subprocess")


@pytest.mark.parametrize(
    "name", ["Pong-v4", "Pong-v0", "Pong-v5", "PongDeterministic-v4", "PongNoFrameskip-v0", "Pong-ramNoFrameskip-v4"]
)
def test_other_ids_name_those_to_use(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is an Atari id .* Use ALE/Pong-v5 .* or PongNoFrameskip-v4 "):
        make(name)


def test_unknown_games() -> None:
    with pytest.raises(UsageError, match=r"no environment ALE/Breakot-v5 ..*Did you mean: `Breakout`"):
        make("ALE/Breakot-v5")
    with pytest.raises(UsageError, match=r"no environment ALE/Breakout-v4 .*use `ALE/Breakout-v5`"):
        make("ALE/Breakout-v4")
    assert make("ale_py:ALE/Pong-v5").name == "ALE/Pong-v5"


@pytest.mark.parametrize("mode", [None, "rgb_array"])
def test_a_missing_rom(mode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(UsageError, match=r"ALE/Pong-v5 cannot be made: FileNotFoundError.*pong\.bin"):
        make("ALE/Pong-v5", render_mode=mode)


def test_missing_opencv_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(UsageError, match=rf"ALE/Pong-v5 needs the Atari .* Install: {re.escape(install('atari'))}"):
        make("ALE/Pong-v5", render_mode="rgb_array")


def test_an_instance_is_stepped_as_it_is() -> None:
    stepper = make(gymnasium.make(BREAKOUT))
    assert stepper.observation_space.shape == (210, 160, 3)


# ------------------------------------------------------------------------------------------- saved and resumed
@pytest.mark.parametrize("fire_reset", [True, "lives"])
def test_eight_games_at_different_points(fire_reset: bool | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_native, "LONGEST", 130)  # so that some games start with a new seed, and some without
    kwargs = {"episodic_life": True, "clip_rewards": True, "max_frames": 600, "fire_reset": fire_reset}
    saving, resumed = (make(BREAKOUT, num_envs=8, kwargs=kwargs) for _ in range(2))
    random = np.random.default_rng(0)
    saving.reset(3)
    for env in range(7):
        record(saving, random, 15)
        saving.reset_env(env, 100 + env)
    record(saving, random, 110)
    saving.reset_env(0, 200)  # and not a step of this one
    assert len(set(saving._lengths.tolist())) >= 7
    state, expected = check_continues(saving, resumed, random, 160)
    told = [tape["actions"] for tape in state["environments"]["engine"].values()]
    assert 1 <= sum(bool((one == atari_native.RESET).any()) for one in told) <= 7
    assert sum(len(ended) for _, ended in expected) >= 8
    assert sum(int(row[6].sum()) for row, _ in expected) >= 2  # truncated


def test_a_run_that_is_never_saved_is_the_same() -> None:
    check_resume("ALE/Pong-v5", 60, kwargs={"max_frames": 200})


@pytest.mark.parametrize("spoil", ["action", "seed"])
def test_another_picture_is_no_exact_resume(spoil: str) -> None:
    saving, resumed, fresh = (make(BREAKOUT, num_envs=2) for _ in range(3))
    saving.reset(0)
    record(saving, np.random.default_rng(0), 40)
    state = saving.state_dict()
    tape: dict[str, Any] = state["environments"]["1"]
    if spoil == "action":
        tape["actions"] = np.zeros_like(tape["actions"])
    else:
        tape["origin"] += 1
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
