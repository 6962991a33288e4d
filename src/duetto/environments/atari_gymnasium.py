"""Atari in Gymnasium's environment and wrappers: slower than `atari_native`, but it renders full frames.

Observations, rewards and lives are those of `atari_native`, bit for bit. Seeds give other random numbers, and a game
starts after 1 to `noop_max` no-op frames, not 0 to `noop_max` - 1.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit
from typing_extensions import override

from duetto.environments import env_registry, silence
from duetto.environments.atari import FRAMES_PER_SECOND, AtariGame, AtariOptions, sticky_actions


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
        terminal_on_life_loss=False,  # it would start a new game at each lost life
    )
    env = FrameStackObservation(TimeLimit(env, options.max_steps), options.stack, padding_type="zero")
    env.metadata = env.metadata | {"render_fps": FRAMES_PER_SECOND / options.frame_skip}
    return env


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
