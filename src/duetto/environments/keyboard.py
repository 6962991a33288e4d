"""A person at the keyboard, as a policy: a window shows the environment, keys are actions.

The window and its pictures are those of Gymnasium's `play`. Its loop is not: that repeats an action as long as a key is
down, ten or thirty times in a second, which suits a game but not MiniGrid, where one press is to be one step.
"""

from __future__ import annotations

import importlib
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from duetto.environments import families, naming
from duetto.environments.explorer import DONE, DROP, FORWARD, LEFT, PICK_UP, RIGHT, TOGGLE
from duetto.environments.making import make
from duetto.environments.stepping import Stepper
from duetto.environments.trees import Tree
from duetto.errors import UsageError
from duetto.extras import install
from duetto.networks.spaces import Discrete

MINIGRID = {"left": LEFT, "right": RIGHT, "up": FORWARD, "p": PICK_UP, "d": DROP, "space": TOGGLE, "return": DONE}
_MINIGRID = "left and right turn, up walks, p picks up, d puts down, space opens, return says done"
# Of environments that do not wait: the keys by the environment's name, and the action without a key.
CLASSIC = {
    "LunarLander": ({"left": 1, "up": 2, "right": 3}, 0),
    "CartPole": ({"left": 0, "right": 1}, 0),
    "MountainCar": ({"left": 0, "right": 2}, 1),
    "Acrobot": ({"left": 0, "right": 2}, 1),
}
MOST_DIGITS = 10  # actions that the keys 0 to 9 can name
LOOKS = 30  # per second, at the keys, while an environment waits for one


class PlayEndedError(Exception):
    """The player closed the window, or pressed Escape."""


class Keys(NamedTuple):
    """The action of each key; the names of keys that are to be down together are joined by "+"."""

    actions: dict[str, int]
    otherwise: int | None  # the action without a key; None: the environment waits for one
    about: str = ""  # for people; else the keys are listed

    def __str__(self) -> str:
        listed = ", ".join(f"{key} is {action}" for key, action in self.actions.items())
        return f"Keys: {self.about or listed}. Escape ends."


def make_player(environment: str, kwargs: Mapping[str, Any] | None = None) -> tuple[Stepper, Keyboard]:
    """Make one environment with a picture, and the person who plays in it.

    Raises:
        UsageError: The environment has other than Discrete actions, or more than there are keys for; or pygame is
            missing.
    """
    stepper = make(environment, render_mode="rgb_array", kwargs=kwargs)
    return stepper, Keyboard(stepper, keys_for(environment, stepper))


def keys_for(environment: str, stepper: Stepper) -> Keys:
    """Return the keys of an environment: Duetto's where there are some, else its own, else digits.

    Raises:
        UsageError: Its actions are not Discrete, or there are more than ten and it has no keys of its own.
    """
    name = environment.rpartition(":")[2].partition("-v")[0]
    if naming.family_of(environment) is families.MINIGRID:
        return Keys(MINIGRID, None, _MINIGRID)
    if name in CLASSIC:
        return Keys(*CLASSIC[name])
    if not isinstance(stepper.action_space, Discrete):
        raise UsageError(f"{environment} has the actions {stepper.action_space}. Only Discrete ones can be keys.")
    own = getattr(stepper.environments[0].unwrapped, "get_keys_to_action", dict)()
    if own:
        start = int(getattr(stepper.engine.single_action_space, "start", 0))  # a stepper counts from 0
        still = -start if 0 <= -start < stepper.action_space.n else 0  # the environment's own 0, if it has one
        return Keys({"+".join(_name(key) for key in keys): action - start for keys, action in own.items()}, still)
    if stepper.action_space.n > MOST_DIGITS:
        raise UsageError(f"{environment} has {stepper.action_space.n} actions, more than there are digits.")
    return Keys({str(action): action for action in range(stepper.action_space.n)}, None)


class Keyboard:
    """A policy that shows the environment in a window, and takes a key for an action.

    `events` gives pygame's events since it was last asked, for tests.
    """

    about = "a person at the keyboard"

    def __init__(self, stepper: Stepper, keys: Keys, events: Callable[[], Iterable[Any]] | None = None) -> None:
        self.keys = keys
        self._stepper = stepper
        self._pygame, self._play = _pygame()
        self._pygame.display.init()
        self._events = events or self._pygame.event.get
        self._actions = {
            frozenset(map(self._pygame.key.key_code, key.split("+"))): a for key, a in keys.actions.items()
        }
        self._clock, self._fps = self._pygame.time.Clock(), LOOKS if keys.otherwise is None else stepper.render_fps
        self._pressed: deque[int] = deque()
        self._game: Any = None

    def __call__(self, obs: Tree, starts: np.ndarray) -> np.ndarray:
        """Return the action (1,) int64. Raises PlayEndedError once the player has had enough."""
        while True:
            self._show()
            for event in self._events():
                self._game.process_event(event)
                if event.type == self._pygame.KEYDOWN and (alone := frozenset([event.key])) in self._actions:
                    self._pressed.append(self._actions[alone])
            if not self._game.running:
                raise PlayEndedError
            self._clock.tick(self._fps)
            if self.keys.otherwise is not None:
                down = frozenset(self._game.pressed_keys)
                return np.array([self._actions.get(down, self.keys.otherwise)])
            if self._pressed:
                return np.array([self._pressed.popleft()])

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Do nothing: the player sees the rewards."""

    def close(self) -> None:
        """Close the window."""
        self._pygame.quit()

    def _show(self) -> None:
        """Draw the environment; the window opens now, because it needs the picture's size."""
        frame = self._stepper.render()
        if self._game is None:
            shown = SimpleNamespace(render_mode="rgb_array", render=self._stepper.render)
            codes = {tuple(keys): action for keys, action in self._actions.items()}
            self._game = self._play.PlayableGame(shown, codes)
        self._play.display_arr(self._game.screen, frame, self._game.video_size, transpose=True)
        self._pygame.display.flip()


def _name(key: str | int) -> str:
    text = key if isinstance(key, str) else chr(key)
    return "space" if text == " " else text


def _pygame() -> tuple[Any, Any]:
    """Import and return pygame and Gymnasium's module `play`; UsageError where pygame is missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no matplotlib, which would only draw curves
            return importlib.import_module("pygame"), importlib.import_module("gymnasium.utils.play")
    except ImportError as error:
        raise UsageError(f"To play needs pygame ({error}). Install: {install('classic')}") from error
