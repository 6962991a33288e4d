"""Atari games by their ids, and how their frames become observations.

Two kinds of id are taken. `ALE/<Game>-v5` repeats the last action instead of the new one with probability 0.25 at each
frame ("sticky actions"); `<Game>NoFrameskip-v4` never does. Frames are skipped here, once, whatever Gymnasium's own
environment of that id would do.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gymnasium.envs.registration import registry

from duetto.environments import families, naming, quiet
from duetto.errors import UsageError

FRAMES_PER_SECOND = 60  # of the console

_ANY_ID = re.compile(r"(\w+?)(-ram)?(Deterministic|NoFrameskip)?-v\d+")


@dataclass(frozen=True)
class AtariOptions:
    """How a game is played and seen. One step of the agent is `frame_skip` frames of the game.

    Raises:
        UsageError: A value is of another type, or out of its range.
    """

    frame_skip: int = 4
    """Frames for which each action is held; the rewards of these frames are added up."""
    max_pool: bool = True
    """See the maximum of a step's last two frames, pixel by pixel: some games draw objects in every other frame."""
    noop_max: int = 30
    """A game begins with a random number of frames without action, below this (from 1 to this with "gymnasium")."""
    fire_reset: bool | Literal["lives"] = True
    """Press FIRE in a game's first frame, where the game has that button: some begin only then. With "lives", as OpenAI
    Baselines does: after the frames without action, and after each lost life (`Practice`); needs `episodic_life`."""
    grayscale: bool = True
    """One channel for each frame; otherwise three, red, green and blue."""
    size: int = 84
    """Height and width in pixels to which the frames, 210 x 160, are reduced by averaging areas."""
    stack: int = 4
    """How many steps' frames make an observation, (stack, size, size), or (stack * 3, size, size) in colour: the oldest
    first, black before a game began."""
    sticky_actions: float | None = None
    """Probability, at each frame, to repeat the action of the frame before; None takes the id's own."""
    full_action_space: bool = False
    """All 18 actions in every game, instead of those that do something in this one."""
    max_frames: int = 108_000
    """A game is truncated after this many frames (30 minutes), counted from the first observation."""
    episodic_life: bool = False
    """A lost life ends the learner's episode, while the game goes on. Evaluations play whole games."""
    clip_rewards: bool = False
    """The learner gets only the sign of each reward. Scores, also those of evaluations, stay the game's own."""
    log_rewards: bool = False
    """The learner gets sign(r) log(1 + |r|) instead of each reward r, as in DQfD. Scores stay the game's own."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_type(field.name, getattr(self, field.name), field.default)
        for name, least in (("frame_skip", 1), ("noop_max", 0), ("size", 1), ("stack", 1), ("max_frames", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"Atari's {name} is {getattr(self, name)}. Give a number of at least {least}.")
        if self.sticky_actions is not None and not 0 <= self.sticky_actions < 1:
            raise UsageError(
                f"Atari's sticky_actions is {self.sticky_actions}. Give a probability, at least 0 and below 1."
            )
        if self.fire_reset == "lives" and not self.episodic_life:
            raise UsageError(
                "Atari's fire_reset is 'lives': FIRE is pressed between the learner's episodes, which end with a life "
                "only with episodic_life. Set that to true, or fire_reset to true."
            )
        if self.clip_rewards and self.log_rewards:
            raise UsageError("Atari's clip_rewards and log_rewards are both on. Leave one of them off.")

    @staticmethod
    def _check_type(name: str, value: Any, default: Any) -> None:
        if name == "fire_reset" and value == "lives":
            return
        wanted = int | float | None if name == "sticky_actions" else type(default)
        if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(default, bool):
            kind = {bool: "true or false", int: "a whole number"}.get(type(default), "a number, or nothing")
            kind = "true, false or lives" if name == "fire_reset" else kind
            raise UsageError(f"Atari's {name} is {value!r}. Give {kind}.")

    @classmethod
    def of(cls, kwargs: Mapping[str, Any]) -> AtariOptions:
        """Make options from names and values; UsageError with the nearest name for one that does not exist."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in kwargs:
            if name not in known:
                raise UsageError(
                    f"Atari has no option {name!r}.{naming.nearest(name, known)} It has {', '.join(known)}."
                )
        return cls(**kwargs)

    @property
    def max_steps(self) -> int:
        """Number of the agent's steps after which a game is truncated."""
        return -(-self.max_frames // self.frame_skip)

    @property
    def channels(self) -> int:
        """Number of channels of an observation."""
        return self.stack * (1 if self.grayscale else 3)


@dataclass(frozen=True)
class Game:
    """An Atari game, as its id describes it."""

    id: str  # ALE/Breakout-v5, for example
    rom: str  # breakout
    sticky_actions: float  # the id's own


def find(environment: str) -> Game | None:
    """Find the Atari game of an id; None for an id of something else, and for an unknown one.

    Raises:
        UsageError: It is another kind of Atari id, or ale-py is missing.
    """
    wanted = environment.removeprefix("ale_py:")
    families.register(wanted)
    named = _ANY_ID.fullmatch(wanted)
    if wanted not in registry and named and importlib.util.find_spec("ale_py"):
        importlib.import_module("ale_py")  # knows more ids than one can tell from their form
    spec = registry.get(wanted)
    if spec is not None and families.of_entry_point(spec.entry_point) is not families.ATARI:
        return None
    if spec is not None and (wanted.startswith("ALE/") or wanted.endswith("NoFrameskip-v4")):
        return Game(wanted, spec.kwargs["game"], float(spec.kwargs["repeat_action_probability"]))
    if named and f"{named[1]}NoFrameskip-v4" in registry:
        raise UsageError(
            f"{environment} is an Atari id with its own frame-skip, observations or sticky actions, which are options "
            f"here. Use ALE/{named[1]}-v5 (sticky_actions 0.25) or {named[1]}NoFrameskip-v4 (0)."
        )
    return None


def sticky_actions(game: Game, options: AtariOptions) -> float:
    """Return the probability to repeat an action: the option's, or else the id's own."""
    return game.sticky_actions if options.sticky_actions is None else float(options.sticky_actions)


def fires_at_lives(game: Game, options: AtariOptions) -> bool:
    """Whether FIRE is pressed after each lost life: where it is asked for, and the game has that button."""
    if options.fire_reset != "lives":
        return False
    ale: Any = families.import_family(families.ATARI, "ale_py", game.id)
    with quiet.output():  # ALE introduces itself
        emulator = ale.ALEInterface()
        emulator.loadROM(ale.roms.get_rom_path(game.rom))
    actions = emulator.getLegalActionSet() if options.full_action_space else emulator.getMinimalActionSet()
    return ale.Action.FIRE in actions
