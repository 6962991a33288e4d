"""Atari in Gymnasium's environment and wrappers: slower than `atari_native`, but it renders full frames.

Observations, rewards and lives are those of `atari_native`, bit for bit. Seeds give other random numbers, and a game
starts after 1 to `noop_max` no-op frames, not 0 to `noop_max` - 1.
"""

from __future__ import annotations

import importlib
from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit, TransformObservation
from typing_extensions import override

from duetto.environments import env_registry, silence
from duetto.environments.atari import FRAMES_PER_SECOND, AtariGame, AtariOptions, sticky_actions
from duetto.environments.rng_state import layers


def make(game: AtariGame, options: AtariOptions, render_mode: str | None) -> gymnasium.Env:
    """Make one environment, in this process or in a worker."""
    env_registry.register(game.id)
    with silence.output():  # ALE introduces itself
        env = gymnasium.make(
            game.id,
            render_mode=render_mode,
            frameskip=1,
            repeat_action_probability=sticky_actions(game, options),
            full_action_space=options.full_action_space,
            max_num_frames_per_episode=0,  # a limit here would hide a truncated game's last frames
            disable_env_checker=True,
        )
    if options.fire_reset is True:
        env = _FireReset(env)
    env = AtariPreprocessing(
        env,
        noop_max=options.noop_max,
        frame_skip=options.frame_skip,
        screen_size=options.size,
        grayscale_obs=options.grayscale,
        terminal_on_life_loss=False,  # it would start a new game at each lost life
    )
    env = FrameStackObservation(TimeLimit(env, options.max_steps), options.stack, padding_type="zero")
    env = _SavesItself(env if options.grayscale else _channels_first(env))
    env.metadata = env.metadata | {"render_fps": FRAMES_PER_SECOND / options.frame_skip}
    return env


def _channels_first(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap an environment so that observations (stack, H, W, 3) become (stack * 3, H, W)."""
    stack, height, width, _ = env.observation_space.shape  # type: ignore[misc]
    shape = (stack * 3, height, width)
    space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return TransformObservation(env, lambda obs: np.moveaxis(obs, -1, 1).reshape(shape), space)


class _FireReset(gymnasium.Wrapper):
    """A wrapper that presses FIRE in a game's first frame, if the game has that button."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        meanings = env.get_wrapper_attr("get_action_meanings")()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    @override
    def reset(self, **kwargs: Any) -> Any:
        first = self.env.reset(**kwargs)
        if self._fire is None:
            return first
        obs, _, _, _, info = self.env.step(self._fire)
        return obs, info


class _SavesItself(gymnasium.Wrapper):
    """A wrapper that saves the emulator with its random generator, and the frames that the wrappers inside keep.

    A game also depends on those before it, by memory that a reset leaves alone, so its episode cannot be repeated. The
    action that sticky actions would repeat is in no state of ALE's, so the last steps are repeated to set it.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        inside = {type(layer): layer for layer in layers(env)}
        self._frames: Any = inside[FrameStackObservation]
        self._screen: Any = inside[AtariPreprocessing]
        self._limit: Any = inside[TimeLimit]
        self._ale: Any = importlib.import_module("ale_py")
        self._last: deque[tuple[Any, int]] = deque(maxlen=8)  # steps of a game: the emulator before it, and the action

    @override
    def reset(self, **kwargs: Any) -> Any:
        self._last.clear()
        return self.env.reset(**kwargs)

    @override
    def step(self, action: Any) -> Any:
        self._last.append((self._screen.ale.cloneState(include_rng=True), int(action)))
        return self.env.step(action)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as arrays and numbers."""
        now = self._screen.ale.cloneState(include_rng=True)
        earlier = self._last[0][0] if self._last else now
        return {
            "emulator": np.frombuffer(now.serialize(), np.uint8),
            "earlier": np.frombuffer(earlier.serialize(), np.uint8),
            "actions": [action for _, action in self._last],
            "screens": np.stack(self._screen.obs_buffer),
            "frames": np.stack(self._frames.obs_queue),
            "steps": int(self._limit._elapsed_steps),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, after a reset."""
        self._restore(state["earlier"])
        for action in state["actions"]:
            self._last.append((self._screen.ale.cloneState(include_rng=True), action))
            self._screen.step(action)
        self._restore(state["emulator"])
        for screen, saved in zip(self._screen.obs_buffer, state["screens"], strict=True):
            screen[...] = saved
        self._frames.obs_queue.extend(state["frames"])
        self._limit._elapsed_steps = state["steps"]

    def _restore(self, emulator: np.ndarray) -> None:
        self._screen.ale.restoreState(self._ale.ALEState(emulator.tobytes()))
