"""Atari in Gymnasium's own environment and wrappers: slower than `atari_native`, but it shows its full picture.

Its observations, rewards and lives are those of `atari_native`, bit for bit. Seeds mean other random numbers, and a
game begins after 1 to `noop_max` frames without action, not 0 to `noop_max` - 1.
"""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit, TransformObservation

from duetto.environments import families, quiet
from duetto.environments.atari import FRAMES_PER_SECOND, AtariOptions, Game, sticky_actions
from duetto.environments.tapes import RESET, Tape
from duetto.errors import UsageError


def make(game: Game, options: AtariOptions, render_mode: str | None) -> gymnasium.Env:
    """Make one environment; runs in a subprocess too. Raises UsageError for what Gymnasium's wrappers cannot do."""
    if options.frame_skip > 1 and not options.max_pool:
        raise UsageError(
            'max_pool=False is not possible with engine="gymnasium", nor in a video. '
            'Use engine="native", or frame_skip=1.'
        )
    families.register(game.id)
    with quiet.output():  # ALE introduces itself
        env = gymnasium.make(
            game.id,
            render_mode=render_mode,
            frameskip=1,
            repeat_action_probability=sticky_actions(game, options),
            full_action_space=options.full_action_space,
            max_num_frames_per_episode=0,  # no limit here, where it would hide a truncated game's last frames
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
        terminal_on_life_loss=False,  # it would begin a new game at each lost life
    )
    env = FrameStackObservation(TimeLimit(env, options.max_steps), options.stack, padding_type="zero")
    env = _Recorded(env if options.grayscale else _channels_first(env))
    env.metadata = env.metadata | {"render_fps": FRAMES_PER_SECOND / options.frame_skip}
    return env


def _channels_first(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap an environment so that observations (stack, H, W, 3) become (stack * 3, H, W)."""
    stack, height, width, _ = env.observation_space.shape  # type: ignore[misc]
    shape = (stack * 3, height, width)
    space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return TransformObservation(env, lambda obs: np.moveaxis(obs, -1, 1).reshape(shape), space)


class _FireReset(gymnasium.Wrapper):
    """A wrapper that presses FIRE in a game's first frame, where the game has that button."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        meanings = env.get_wrapper_attr("get_action_meanings")()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, **kwargs: Any) -> Any:
        """See gymnasium.Env."""
        first = self.env.reset(**kwargs)
        if self._fire is None:
            return first
        obs, _, _, _, info = self.env.step(self._fire)
        return obs, info


class _Recorded(gymnasium.Wrapper):
    """A wrapper that records a tape, and plays it again to return to the same state. See `tapes`."""

    saves_what_is_inside = True

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._tape: Tape | None = None
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """See gymnasium.Env."""
        if seed is None and self._tape is not None:
            return self._begun(self._tape.next_game())
        self._tape = Tape(int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed)
        return self._begun(self._tape.seed)

    def _begun(self, seed: int | None) -> Any:
        self._seen, info = self.env.reset(seed=seed)
        return self._seen, info

    def step(self, action: Any) -> Any:
        """See gymnasium.Env."""
        assert self._tape is not None, "step before the first reset"
        self._tape.told.append(int(action))
        outcome = self.env.step(action)
        self._seen = outcome[0]
        return outcome

    def state_dict(self) -> dict[str, Any]:
        """Return the tape, and a checksum of the picture that it ends with."""
        assert self._tape is not None, "saved before the first reset"
        return {**self._tape.state_dict(), "picture": self._picture()}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Play the tape again; return False where it ends with another picture, as with another version of ale-py."""
        self._tape = Tape.of(state)
        self._begun(self._tape.seed)
        for told in self._tape.told:
            self._seen = (self.env.reset() if told == RESET else self.env.step(told))[0]
        return state.get("picture", self._picture()) == self._picture()  # earlier versions kept none

    def _picture(self) -> str:
        return hashlib.sha256(np.asarray(self._seen).tobytes()).hexdigest()
