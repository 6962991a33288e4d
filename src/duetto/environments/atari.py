"""Atari ids and options; make a game with Gymnasium's environment and wrappers, which can render whole frames.

Two kinds of id are supported. `ALE/<Game>-v5` repeats the last action instead of the new one with probability 0.25 at
each frame ("sticky actions"); `<Game>NoFrameskip-v4` never does. With both, the option `frame_skip` alone decides how
many frames are skipped.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec, registry
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit
from typing_extensions import override

from duetto.algorithms.options import Count, CountOrZero, check_fields
from duetto.algorithms.suggestions import did_you_mean
from duetto.environments import env_registry, silence
from duetto.errors import UsageError

FRAMES_PER_SECOND = 60  # of the console

_ANY_ID = re.compile(r"(\w+?)(-ram)?(Deterministic|NoFrameskip)?-v\d+")


@dataclass(frozen=True)
class AtariOptions:
    """Options of a game, in which one step of the agent is `frame_skip` frames.

    Raises:
        UsageError: A value has the wrong type or is out of range.
    """

    frame_skip: Count = 4
    """Frames for which each action is held. Rewards are summed over them. Observations are the pixelwise maximum of the
    last two, since some games draw objects only in every other frame."""
    noop_max: CountOrZero = 30
    """A game starts with a random number of no-op frames: 0 to noop_max - 1, in videos 1 to noop_max."""
    fire_reset: bool | Literal["lives"] = True
    """Press FIRE in the first frame of a game that has this button, since some games wait for it. "lives": press it
    after the no-op frames and after each lost life, as in OpenAI Baselines (`LearnerView`); needs `episodic_life`."""
    size: Count = 84
    """Height and width in pixels; frames of 210 x 160 are resized by area averaging."""
    stack: Count = 4
    """An observation has the gray frames of this many steps, (stack, size, size), the oldest first. Frames from before
    the game's start are black."""
    sticky_actions: float | None = None
    """Probability at each frame that the previous frame's action is repeated; None: as the id says."""
    full_action_space: bool = False
    """Use all 18 actions, not only those with an effect in this game."""
    max_frames: Count = 108_000
    """A game is truncated after this many frames (30 minutes), counted from the first observation."""
    episodic_life: bool = False
    """A lost life ends the learner's episode, while the game continues. Evaluations play whole games."""
    clip_rewards: bool = False
    """Learn from the sign of each reward. Scores, also in evaluations, sum the game's own rewards."""
    log_rewards: bool = False
    """Learn from sign(r) log(1 + |r|) instead of the reward r, as in DQfD. Scores sum the game's own rewards."""

    def __post_init__(self) -> None:
        try:
            check_fields(self)
        except UsageError as error:
            raise UsageError(f"Atari's {error}") from error
        sticky = self.sticky_actions
        if sticky is not None and (type(sticky) not in (int, float) or not 0 <= sticky < 1):
            raise UsageError(f"Atari's sticky_actions is {sticky!r}. Give a probability, at least 0 and below 1.")
        if not isinstance(self.fire_reset, bool) and self.fire_reset != "lives":
            raise UsageError(f"Atari's fire_reset is {self.fire_reset!r}. Give true, false or lives.")
        if self.fire_reset == "lives" and not self.episodic_life:
            raise UsageError(
                "Atari's fire_reset is 'lives', which needs episodic_life: FIRE is pressed between the learner's "
                "episodes. Set episodic_life to true, or fire_reset to true."
            )
        if self.clip_rewards and self.log_rewards:
            raise UsageError("Atari's clip_rewards and log_rewards are both on. Leave one of them off.")

    @classmethod
    def of(cls, kwargs: Mapping[str, Any]) -> AtariOptions:
        """Make options from names and values; for an unknown name, raise UsageError with the nearest known name."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in kwargs:
            if name not in known:
                raise UsageError(f"Atari has no option {name!r}.{did_you_mean(name, known)}")
        return cls(**kwargs)

    @property
    def max_steps(self) -> int:
        """Number of steps after which a game is truncated."""
        return -(-self.max_frames // self.frame_skip)


def find(environment: str) -> EnvSpec | None:
    """Return ale-py's entry of an Atari game in Gymnasium's registry; None if the id is not an Atari game's.

    Raises:
        UsageError: The id is an Atari id of an unsupported kind, or ale-py is missing.
    """
    wanted = environment.removeprefix("ale_py:")
    env_registry.register(wanted)
    named = _ANY_ID.fullmatch(wanted)
    if named and wanted not in registry:  # such as Pong-v4, which only ale-py registers
        with suppress(ImportError):
            import_module("ale_py")
    if wanted in registry:
        if env_registry.family_of(wanted) is not env_registry.ATARI:
            return None
        if wanted.startswith("ALE/") or wanted.endswith("NoFrameskip-v4"):
            return registry[wanted]
    if named and f"{named[1]}NoFrameskip-v4" in registry:
        raise UsageError(
            f"{environment} is an Atari id with fixed frame skip, observations or sticky actions, which are options in "
            f"Duetto. Use ALE/{named[1]}-v5 (sticky_actions 0.25) or {named[1]}NoFrameskip-v4 (0)."
        )
    return None


def sticky_actions(game: EnvSpec, options: AtariOptions) -> float:
    """Return the probability to repeat an action: the option `sticky_actions`, or if it is None, the id's value."""
    own = options.sticky_actions
    return float(game.kwargs["repeat_action_probability"] if own is None else own)


def make(game: EnvSpec, options: AtariOptions, render_mode: str | None) -> gymnasium.Env:
    """Make a game with Gymnasium's environment and wrappers: slower than `atari_native`, but it renders full frames.

    Observations, rewards and lives equal those of `atari_native` bit for bit if the emulator runs through the same
    frames. But a seed gives other random numbers, and a game starts after 1 to `noop_max` no-op frames, not after 0 to
    `noop_max` - 1.
    """
    with silence.output():  # ALE prints a banner
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

    @override
    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        meanings = self.env.get_wrapper_attr("get_action_meanings")()
        if "FIRE" in meanings:
            obs, _, _, _, info = self.env.step(meanings.index("FIRE"))
        return obs, info
