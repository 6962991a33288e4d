"""MiniGrid and BabyAI by their ids, with observations that networks can read.

An agent sees the 7 x 7 cells before it, each as three numbers (object, colour, state), the direction it looks in, and
its mission as a text. Rewards, ends and actions stay MiniGrid's own: 1 - 0.9 * steps / max_steps for success and 0
otherwise (-1 for a collision in Dynamic-Obstacles), truncated after max_steps.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from duetto.environments import missions, naming, values
from duetto.errors import UsageError
from duetto.functional import randomness

OBJECTS, COLOURS, STATES = 11, 6, 3  # how many there are of each, in minigrid.core.constants
DIRECTIONS = 4
MOST_TRIES = 10_000  # of finding a place; with a single one among the 36 of a room, 1 in 10^122 fails wrongly
SPREAD = np.array([25, 51, 127], np.uint8)  # times the numbers of objects, colours and states: 0..250, 0..255, 0..254

View = Literal["vector", "image"]
Mission = Literal["bag", "ordered", "off"]


@dataclass(frozen=True)
class MiniGridOptions:
    """How MiniGrid is seen. Other arguments (`max_steps`, `agent_view_size` ...) go to the environment's constructor.

    Raises:
        UsageError: A value that does not exist.
    """

    view: View = "vector"
    """"vector": one vector of zeros and ones, Box((n,), uint8): the one-hot codes of the object (11), the colour (6)
    and the state (3: open, closed, locked) of each cell, those of the direction (4), and the mission; n is 980 + 4 + 54
    with a view of 7 x 7 cells. "image": a Dict of "image", Box((7, 7, 3), uint8) with the three numbers spread over
    0..255, "direction", Discrete(4), and "mission", a vector."""
    direction: bool = True
    """Tell which way the agent looks: right, down, left or up."""
    mission: Mission = "bag"
    """"bag": one number for each word of `missions.VOCABULARY`, 1 where the word occurs. Order is lost, so "put the red
    ball next to the green box" and "put the green ball next to the red box" look alike: in PutNear, PutNext, Synth,
    BossLevel and wherever one thing is done before another, take "ordered", a bag for each of up to 8 phrases (432
    numbers). "off" leaves missions out."""

    def __post_init__(self) -> None:
        naming.check_choice("MiniGrid's view", self.view, View)
        naming.check_choice("MiniGrid's mission", self.mission, Mission)
        if not isinstance(self.direction, bool):
            raise UsageError(f"MiniGrid's direction is {self.direction!r}. Give true or false.")

    @classmethod
    def take(cls, kwargs: Mapping[str, Any]) -> tuple[MiniGridOptions, dict[str, Any]]:
        """Return the options among `kwargs`, and the others, which are for the environment's constructor."""
        own = {name: value for name, value in kwargs.items() if name in OPTIONS}
        if own.get("mission") is False:  # so YAML, and with it the command line, reads the word off
            own["mission"] = "off"
        return cls(**own), {name: value for name, value in kwargs.items() if name not in OPTIONS}


OPTIONS = [field.name for field in dataclasses.fields(MiniGridOptions)]


def wrap(env: gymnasium.Env, options: MiniGridOptions) -> gymnasium.Env:
    """Wrap a MiniGrid environment so that networks can read it and it can save itself.

    Raises:
        UsageError: It is made from a pattern whose picture is missing.
    """
    # BabyAI prints a line for each mission that it draws and rejects: more lines than there are episodes.
    vars(importlib.import_module("minigrid.envs.babyai.core.roomgrid_level"))["print"] = lambda *_: None
    pattern = getattr(getattr(env.unwrapped, "config", None), "pattern_path", None)
    if pattern is not None and not pattern.exists():
        raise UsageError(
            f"{env.spec.id if env.spec else env} needs the picture {pattern}, which minigrid's packages on PyPI leave "
            'out. Install: pip install "minigrid[wfc] @ git+https://github.com/Farama-Foundation/Minigrid"'
        )
    view = _VectorView if options.view == "vector" else _ImageView
    return _Replayed(view(_Placing(env), options))


class _Placing(gymnasium.Wrapper):
    """A wrapper that ends the search for the agent's place where there is none.

    BabyAI wants the cell before the agent to be free. In a small room no place may have that, and it would search for
    ever: at one reset in 2,000 of BabyAI-SynthS5R2-v0. After a RecursionError it draws the whole level again.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        inside: Any = env.unwrapped
        self._place, self._tries = inside.place_obj, 0
        inside.place_obj = self._place_obj

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """See gymnasium.Env."""
        self._tries = 0
        return self.env.reset(seed=seed, options=options)

    def _place_obj(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        self._tries = 0 if obj is not None else self._tries + 1  # None stands for the agent
        if self._tries > MOST_TRIES:
            raise RecursionError("no place for the agent")
        return self._place(obj, *args, **kwargs)


class _VectorView(gymnasium.ObservationWrapper):
    """A wrapper that shows one vector of zeros and ones: the cells, the direction, the mission."""

    def __init__(self, env: gymnasium.Env, options: MiniGridOptions) -> None:
        super().__init__(env)
        cells = math.prod(_image_space(env).shape[:2])
        length = OBJECTS + COLOURS + STATES
        # Where the one-hot code of each of the image's numbers begins.
        self._first = np.add.outer(np.arange(cells) * length, (0, OBJECTS, OBJECTS + COLOURS)).reshape(-1)
        self._compass = cells * length if options.direction else None
        self._words = cells * length + DIRECTIONS * options.direction
        self._encode = missions.encoder(options.mission)
        self._size = self._words + len(self._encode(""))
        self.observation_space = gymnasium.spaces.Box(0, 1, (self._size,), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        """See gymnasium.ObservationWrapper."""
        vector = np.zeros(self._size, np.uint8)
        vector[self._first + observation["image"].reshape(-1)] = 1
        if self._compass is not None:
            vector[self._compass + observation["direction"]] = 1
        vector[self._words :] = self._encode(observation["mission"])
        return vector


class _ImageView(gymnasium.ObservationWrapper):
    """A wrapper that shows the cells as an image, and beside it the direction and the mission."""

    def __init__(self, env: gymnasium.Env, options: MiniGridOptions) -> None:
        super().__init__(env)
        self._encode = missions.encoder(options.mission)
        self._direction, self._words = options.direction, len(self._encode(""))
        space: dict[str, gymnasium.Space] = {"image": _image_space(env)}
        if self._direction:
            space["direction"] = gymnasium.spaces.Discrete(DIRECTIONS)
        if self._words:
            space["mission"] = gymnasium.spaces.Box(0, 1, (self._words,), np.uint8)
        self.observation_space = gymnasium.spaces.Dict(space)

    def observation(self, observation: Any) -> dict[str, Any]:
        """See gymnasium.ObservationWrapper."""
        seen = {"image": observation["image"] * SPREAD}
        if self._direction:
            seen["direction"] = observation["direction"]
        if self._words:
            seen["mission"] = self._encode(observation["mission"])
        return seen


def _image_space(env: gymnasium.Env) -> gymnasium.spaces.Box:
    space: Any = env.observation_space
    return gymnasium.spaces.Box(0, 255, space["image"].shape, np.uint8)


class _Replayed(gymnasium.Wrapper):
    """A wrapper that restores a state by playing the episode again, from the random numbers with which it began.

    All that an episode depends on are these and the actions; an episode is short, and a step takes 0.1 ms. Saving the
    objects instead (cells, boxes' contents, instructions and what of them is done) would take a rule for each of
    MiniGrid's classes, and would fail for a user's own.
    """

    saves_what_is_inside = True

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._begin: dict[str, Any] | None = None
        self._told = bytearray()
        self._seen: Any = None
        self._set: dict[str, Any] = {}  # from outside, until now
        self._set_before: dict[str, Any] = {}  # until the episode began
        self._set_since: list[tuple[int, str, Any]] = []  # and the number of actions before

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """See gymnasium.Env."""
        self._begin = {"generator": randomness.state_of(self.np_random)} if seed is None else {"seed": seed}
        self._told.clear()
        self._set_before, self._set_since = dict(self._set), []
        self._seen, info = self.env.reset(seed=seed, options=options)
        return self._seen, info

    def step(self, action: Any) -> Any:
        """See gymnasium.Env."""
        told = int(action)  # MiniGrid compares it with up to seven enums; with NumPy's numbers that takes longer
        self._told.append(told)
        outcome = self.env.step(told)
        self._seen = outcome[0]
        return outcome

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """See gymnasium.Env; it is kept, for what comes after it may depend on it."""
        before = self.get_wrapper_attr(name) if self.has_wrapper_attr(name) else None
        found = super().set_wrapper_attr(name, value, force=force)
        if found:
            self._set_before.setdefault(name, copy.deepcopy(before))
            self._set[name] = copy.deepcopy(value)
            self._set_since.append((len(self._told), name, self._set[name]))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return how the episode began, the actions since, what was set, and a fingerprint of where that led."""
        assert self._begin is not None, "saved before the first reset"
        told = np.frombuffer(bytes(self._told), np.uint8)
        before = {name: _encoded(value) for name, value in self._set_before.items()}
        since = [{"after": n, "name": name, "value": _encoded(value)} for n, name, value in self._set_since]
        return {
            "begin": self._begin,
            "told": told,
            "set": before,
            "set_since": {str(i): one for i, one in enumerate(since)},
            "fingerprint": self._fingerprint(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Play the episode again; return False where it leads elsewhere, with another minigrid for example."""
        begin, told = state["begin"], bytes(np.asarray(state["told"], np.uint8))
        for name, value in state.get("set", {}).items():
            self.set_wrapper_attr(name, values.decode(value))
        if "generator" in begin:
            randomness.restore(self.np_random, begin["generator"])
        self.reset(seed=begin.get("seed"))
        since = list(state.get("set_since", {}).values())
        for n, action in enumerate([*told, None]):
            for one in since:
                if one["after"] == n:
                    self.set_wrapper_attr(one["name"], values.decode(one["value"]))
            if action is not None:
                self.step(action)
        return self._fingerprint() == state["fingerprint"]

    def _fingerprint(self) -> str:
        """Return a hash of the observation, the whole grid, the agent, the time and the random numbers to come."""
        inside: Any = self.unwrapped
        seen = self._seen if isinstance(self._seen, dict) else {"": self._seen}
        parts = {name: np.asarray(part).tobytes().hex() for name, part in seen.items()}
        numbers = [int(inside.step_count), int(inside.max_steps), randomness.state_of(self.np_random)]
        text = json.dumps([parts, inside.hash(64), inside.mission, numbers], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _encoded(value: Any) -> Any:
    return values.encode(value, values.Seen())
