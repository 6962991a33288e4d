"""A person at the keyboard as an expert of `duetto demos record`: a window shows the environment, keys are actions.

    duetto demos record ALE/Pong-v5 --expert examples/experts/keyboard.py:Keyboard --episodes 3 --output demos/mine

The window is that of Gymnasium's `play`. The loop differs, because `play` repeats an action while a key is down; in
MiniGrid one press is one step.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from duetto.demonstrations import RecordingEndedError
from duetto.environments import VecEnv
from duetto.errors import UsageError
from duetto.networks.spaces import Discrete

MINIGRID = {"left": 0, "right": 1, "up": 2, "p": 3, "d": 4, "space": 5, "return": 6}
_MINIGRID = "left and right turn, up walks, p picks up, d puts down, space opens, return says done"
# Environments that do not wait for a key: their keys, and the action without a key.
CLASSIC = {
    "LunarLander": ({"left": 1, "up": 2, "right": 3}, 0),
    "CartPole": ({"left": 0, "right": 1}, 0),
    "MountainCar": ({"left": 0, "right": 2}, 1),
    "Acrobot": ({"left": 0, "right": 2}, 1),
}
MOST_DIGITS = 10  # actions that the keys 0 to 9 can name
LOOKS = 30  # polls of the keyboard per second while an environment waits for a key


class Keys(NamedTuple):
    """The action of each key; "+" joins keys that are pressed together."""

    actions: dict[str, int]
    otherwise: int | None  # the action without a key; None: the environment waits for one
    about: str = ""  # shown instead of the list of keys

    def __str__(self) -> str:
        listed = ", ".join(f"{key} is {action}" for key, action in self.actions.items())
        return f"Keys: {self.about or listed}. Escape ends."


def keys_for(environment: str, stepper: VecEnv) -> Keys:
    """Return the keys of an environment: those in this file, else those that the environment defines, else digits.

    Raises:
        UsageError: The actions are not Discrete, or there are more than ten and the environment defines no keys.
    """
    name = environment.rpartition(":")[2].partition("-v")[0]
    if name.startswith(("MiniGrid-", "BabyAI-")):
        return Keys(MINIGRID, None, _MINIGRID)
    if name in CLASSIC:
        return Keys(*CLASSIC[name])
    if not isinstance(stepper.action_space, Discrete):
        raise UsageError(f"{environment} has the actions {stepper.action_space}. Only Discrete actions can be keys.")
    own = getattr(stepper.environments[0].unwrapped, "get_keys_to_action", dict)()
    if own:
        start = int(getattr(stepper.engine.single_action_space, "start", 0))  # Duetto's actions count from 0
        still = -start if 0 <= -start < stepper.action_space.n else 0  # the environment's action 0, if it exists
        return Keys({"+".join(_name(key) for key in keys): action - start for keys, action in own.items()}, still)
    if stepper.action_space.n > MOST_DIGITS:
        raise UsageError(f"{environment} has {stepper.action_space.n} actions, more than digits.")
    return Keys({str(action): action for action in range(stepper.action_space.n)}, None)


class Keyboard:
    """A policy that shows the environment in a window, and reads actions from the keyboard."""

    about = "a person at the keyboard"
    render_mode = "rgb_array"

    def __init__(
        self, stepper: VecEnv, keys: Keys | None = None, events: Callable[[], Iterable[Any]] | None = None
    ) -> None:
        """Print the keys.

        Args:
            stepper: The environment that the player acts in.
            keys: The keys; by default those of the environment.
            events: Returns pygame's events since its last call; for tests.
        """
        self.keys = keys = keys or keys_for(stepper.name, stepper)
        print(keys, file=sys.stderr)
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

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        """Return the action (1,) int64. Raises RecordingEndedError after Escape."""
        while True:
            self._show()
            for event in self._events():
                self._game.process_event(event)
                if event.type == self._pygame.KEYDOWN and (alone := frozenset([event.key])) in self._actions:
                    self._pressed.append(self._actions[alone])
            if not self._game.running:
                raise RecordingEndedError
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
        """Draw the environment. The first call opens the window, which needs the picture's size."""
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
    """Return the modules pygame and Gymnasium's `play`; UsageError if pygame is missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about matplotlib, which `play` only needs for curves
            return importlib.import_module("pygame"), importlib.import_module("gymnasium.utils.play")
    except ImportError as error:
        raise UsageError(f"Playing needs pygame ({error}). Install it.") from error
