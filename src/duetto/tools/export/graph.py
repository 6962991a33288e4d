"""The computation of an exported agent on arrays of any framework, with its named inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.base import Algorithm, Array, Tree
from duetto.environments import to_gymnasium
from duetto.functional.distributions import split_bounds
from duetto.functional.running_stats import Moments
from duetto.networks import masks
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete, Space, num_columns, spell
from duetto.training.policy import no_action, one_step

SINGLE, ACTION = "observation", "action"  # names of the input and the output; parts of a Dict: SINGLE/NAME, ACTION/NAME
MASK = "action_mask"
NEXT = "next/"  # prefix of outputs that are inputs of the next step
PREVIOUS = ("previous_action", "previous_reward", "starts")
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


@dataclass(frozen=True)
class Port:
    """One input or output array, (N, *shape) for N environments."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    about: str

    def empty(self, rows: int) -> np.ndarray:
        """Return an array (rows, *shape) of zeros."""
        return np.zeros((rows, *self.shape), self.dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return the port's description for the JSON file of an export."""
        return {"name": self.name, "shape": ["N", *self.shape], "dtype": self.dtype, "about": self.about}


@dataclass(frozen=True)
class Graph:
    """The computation of an exported agent, for any framework.

    A dict "by part" has a key for each part of a Dict space, and only the key "" for other spaces.

    Attributes:
        action_dtypes: The dtypes of the environment's actions, by part.
        carries: Shapes of the acting networks' carry (hidden state), by name; empty without recurrence.
        moments: Statistics of the observation's scaled parts, by part.
    """

    algorithm: Algorithm
    observation: Space
    action: Space
    action_dtypes: dict[str, str]
    carries: dict[str, tuple[int, ...]]
    moments: dict[str, Moments]
    clip: float
    masked: bool = False  # whether the agent takes a mask of allowed actions
    narrow: bool = False  # whether inputs and outputs have 32 bits at most, as JAX's arrays have by default

    @property
    def observations(self) -> dict[str, Any]:
        """The parts of an observation, by the names of their inputs."""
        if isinstance(self.observation, Dict):
            return {f"{SINGLE}/{name}": part for name, part in self.observation.parts}
        return {SINGLE: self.observation}

    @property
    def inputs(self) -> list[Port]:
        """The inputs in order: the observation's parts, the action mask; if recurrent, `PREVIOUS` and the carry."""
        ports = [
            self._port(name, to_gymnasium(part).shape, to_gymnasium(part).dtype, spell(part, bounds=False))
            for name, part in self.observations.items()
        ]
        if self.masked:
            about = "true where an action is allowed, as info['action_mask'] of the environment"
            ports.append(Port(MASK, (sum(masks.choice_sizes(self.action)),), "bool", about))
        if self.carries:
            action, *carry = self._memory("", f"the last output {NEXT}...; zeros at first")
            reward = Port("previous_reward", (), "float32", "the last action's reward")
            starts = Port("starts", (), "bool", "true at an episode's first step, which resets the carry")
            ports += [action, reward, starts, *carry]
        return ports

    @property
    def outputs(self) -> list[Port]:
        """The outputs in order: the action's parts; if recurrent, `previous_action` and the carry of the next step."""
        about = "as the environment takes it"
        actions = [
            self._port(
                output(name),
                to_gymnasium(part).shape,
                self.action_dtypes[name],
                f"part {name}, {about}" if name else about,
            )
            for name, part in self.actions
        ]
        return [*actions, *(self._memory(NEXT, "an input of the next step") if self.carries else ())]

    @property
    def actions(self) -> tuple[tuple[str, Any], ...]:
        """The parts of an action with their names."""
        return self.action.parts if isinstance(self.action, Dict) else (("", self.action),)

    def _port(self, name: str, shape: Any, dtype: Any, about: str) -> Port:
        """Return a port, with a dtype of at most 32 bits if the graph is narrow."""
        word = str(np.dtype(dtype))
        return Port(name, tuple(shape), _NARROW.get(word, word) if self.narrow else word, about)

    def _memory(self, prefix: str, about: str) -> list[Port]:
        """Return the ports of a recurrent agent's previous action and carry."""
        before = no_action(self.action, 1)
        carry = [Port(f"{prefix}carry/{name}", shape, "float32", about) for name, shape in self.carries.items()]
        return [self._port(f"{prefix}previous_action", before.shape[1:], before.dtype, about), *carry]

    def __call__(self, nets: Any, inputs: dict[str, Array]) -> tuple[Array, ...]:
        """Compute the outputs in order. `nets` are the acting networks, in the form that `Algorithm.act` takes."""
        parts = {_part(name): _counted(part, inputs[name]) for name, part in self.observations.items()}
        parts |= {name: self._scale(parts[name], moments) for name, moments in self.moments.items()}
        obs = parts if isinstance(self.observation, Dict) else parts[""]
        obs = masks.with_mask(obs, inputs[MASK] if self.masked else None)
        if not self.carries:
            return self.in_units(self.algorithm.act(nets, obs, None))
        action = self.algorithm.act(nets, self._window(obs, inputs), None)
        carry: dict[str, Array] = {}
        for name in self.algorithm.acting_networks:
            carry |= getattr(nets, name).carry
        before = array_namespace(action).astype(action, inputs["previous_action"].dtype)
        return (*self.in_units(action), before, *(carry[name] for name in self.carries))

    def _window(self, obs: Tree, inputs: dict[str, Array]) -> SequenceInput:
        """Return a sequence of one step. At an episode's start, previous action and reward are `no_action` and 0."""
        action, reward, starts = (inputs[name] for name in PREVIOUS)
        xp = array_namespace(reward)
        none = _like(action, no_action(self.action, 1)[0])
        action = xp.where(xp.reshape(starts, (-1, *(1,) * (action.ndim - 1))), none, action)
        reward = xp.where(starts, xp.zeros_like(reward), self.algorithm.seen_reward(reward))
        return one_step(obs, action, reward, starts, {name: inputs[f"carry/{name}"] for name in self.carries})

    def _scale(self, x: Array, moments: Moments) -> Array:
        """Scale `x` as `running_stats.normalize` does, in float32. Subtract the mean in two parts, for precision."""
        xp = array_namespace(x)
        x = x if x.dtype == xp.float32 else xp.astype(x, xp.float32)
        high = moments.mean.astype(np.float32)
        centered = (x - _like(x, high)) - _like(x, moments.mean - high)
        std = _like(centered, np.sqrt(moments.variance) + 1e-8)
        return xp.clip(centered / std, -self.clip, self.clip)

    def in_units(self, action: Array) -> tuple[Array, ...]:
        """Convert the policy's actions to the environment's, as `environments.ActionMap.to_environment` does."""
        each = self.apart(action)
        ports = zip(self.outputs, self.actions, strict=False)  # the carry's ports follow the actions'
        return tuple(_in_units(part, each[name], port.dtype) for port, (name, part) in ports)

    def apart(self, action: Array) -> dict[str, Array]:
        """Split the columns of actions (N, columns) into the action's parts, by name."""
        if not isinstance(self.action, Dict):
            return {"": action}
        ends = split_bounds([num_columns(part) for _, part in self.action.parts])
        return {name: action[:, low:high] for (name, _), (low, high) in zip(self.action.parts, ends, strict=True)}

    def as_given(self, obs: Tree) -> dict[str, np.ndarray]:
        """Convert a `VecEnv`'s observations, whose discrete values start at 0, to the graph's inputs."""
        obs, mask = masks.split_mask(obs)
        inputs = {} if mask is None else {MASK: mask}
        for name, part in self.observations.items():
            values = obs[_part(name)] if isinstance(obs, dict) else obs
            own: Any = to_gymnasium(part)
            inputs[name] = (np.reshape(values, (-1, *own.shape)) + _start(part)).astype(own.dtype)
        return inputs


def _part(name: str) -> str:
    """Return the observation's part from an input's name: "b" from "observation/b", "" from "observation"."""
    return name.partition("/")[2]


def output(part: str) -> str:
    """Return the output's name for this part of an action."""
    return f"{ACTION}/{part}" if part else ACTION


def _in_units(space: Any, action: Array, name: str) -> Array:
    """Convert actions of one space to the environment's actions (N, ...), with the dtype called `name`."""
    xp = array_namespace(action)
    dtype = getattr(xp, name)
    if isinstance(space, Box):
        center, half = (part.astype(np.float32) for part in space.units())
        low, high = _inside(*space.bounds)
        values = action * _like(action, half) + _like(action, center)
        values = xp.minimum(xp.maximum(values, _like(action, low)), _like(action, high))
        values = xp.round(values) if np.dtype(name).kind in "biu" else values
        return xp.reshape(xp.astype(values, dtype), (-1, *space.shape))
    choices = xp.astype(xp.reshape(action, (-1, *_start(space).shape)), dtype)
    return choices + _like(choices, _start(space))


def _inside(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round bounds inwards to float32, so that an action at a bound is inside the space."""
    least, most = low.astype(np.float32), high.astype(np.float32)
    least = np.where(least.astype(np.float64) < low, np.nextafter(least, np.float32(np.inf)), least)
    return least, np.where(most.astype(np.float64) > high, np.nextafter(most, np.float32(-np.inf)), most)


def _counted(space: Any, x: Array) -> Array:
    """Shift discrete values to start at 0; flatten those of a MultiDiscrete to (N, n). Return a Box's values as is."""
    if isinstance(space, Box):
        return x
    xp = array_namespace(x)
    x = x - _like(x, _start(space))
    return x if isinstance(space, Discrete) else xp.reshape(x, (-1, len(space.nvec)))


def _start(space: Any) -> np.ndarray:
    """Return the smallest value of each component of a discrete space; 0 for a Box."""
    return np.asarray(getattr(to_gymnasium(space), "start", 0))


def _like(x: Array, constant: np.ndarray) -> Array:
    """Return the constant as an array of x's framework and dtype, with a first axis of length 1 for environments."""
    return array_namespace(x).asarray(np.asarray(constant)[None].tolist(), dtype=x.dtype)
