"""The computation of an exported agent on arrays of any framework, and its inputs and outputs by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.base import Algorithm, Array, Tree
from duetto.functional.distributions import split_bounds
from duetto.functional.running_stats import Moments
from duetto.networks import masks
from duetto.networks.sequence_input import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, num_columns, spell
from duetto.networks.specs import AnyNetworkSpec
from duetto.training.policy import no_action

SINGLE, ACTION = "observation", "action"  # the names of input and output if there is one part
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
        """Return zeros (rows, *shape)."""
        return np.zeros((rows, *self.shape), self.dtype)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the second file of an export has it."""
        return {"name": self.name, "shape": ["N", *self.shape], "dtype": self.dtype, "about": self.about}


@dataclass(frozen=True)
class Graph:
    """The computation, independent of a framework.

    Attributes:
        action_dtypes: The dtypes that the environment takes, by the part of an action; "" is the only part.
        carries: Shapes of the acting networks' carry, by name; none without recurrence.
        moments: Statistics that observations are scaled by, by part; "" is the only part.
    """

    algorithm: Algorithm
    specs: dict[str, AnyNetworkSpec]
    observation: Space
    action: Space
    action_dtypes: dict[str, str]
    carries: dict[str, tuple[int, ...]]
    moments: dict[str, Moments]
    clip: float
    masked: bool = False  # whether it takes a mask of allowed actions
    narrow: bool = False  # whether arrays have 32 bits at most, as JAX's by default

    @property
    def observations(self) -> dict[str, Any]:
        """The parts of an observation, by the names of their inputs."""
        if isinstance(self.observation, Dict):
            return {f"{SINGLE}/{name}": part for name, part in self.observation.parts}
        return {SINGLE: self.observation}

    @property
    def inputs(self) -> list[Port]:
        """The inputs in order: the observation's parts, a mask of allowed actions, a recurrent agent's carry."""
        ports = [
            Port(name, _shape(part), self._dtype(_dtype(part)), spell(part, bounds=False))
            for name, part in self.observations.items()
        ]
        if self.masked:
            about = "true where an action is allowed, as info['action_mask'] of the environment"
            ports.append(Port(MASK, (sum(masks.choice_sizes(self.action)),), "bool", about))
        if not self.carries:
            return ports
        before = no_action(self.action, 1)
        return [
            *ports,
            Port(
                "previous_action",
                before.shape[1:],
                self._dtype(before.dtype.name),
                f"the last output {NEXT}previous_action",
            ),
            Port("previous_reward", (), "float32", "the last action's reward"),
            Port("starts", (), "bool", "true at an episode's first step, which resets the carry"),
            *self._carried("", f"the last output {NEXT}...; zeros at first"),
        ]

    @property
    def outputs(self) -> list[Port]:
        """The outputs in order: the action, or its parts, then a recurrent agent's carry."""
        about = "as the environment takes it"
        actions = [
            Port(
                output(name),
                _shape(part),
                self._dtype(self.action_dtypes[name]),
                f"part {name}, {about}" if name else about,
            )
            for name, part in self.actions
        ]
        if not self.carries:
            return actions
        before = no_action(self.action, 1)
        about = "an input of the next step"
        again = Port(f"{NEXT}previous_action", before.shape[1:], self._dtype(before.dtype.name), about)
        return [*actions, again, *self._carried(NEXT, about)]

    @property
    def actions(self) -> tuple[tuple[str, Any], ...]:
        """The parts of an action by name; "" is the only part."""
        return self.action.parts if isinstance(self.action, Dict) else (("", self.action),)

    def _dtype(self, name: str) -> str:
        return _NARROW.get(name, name) if self.narrow else name

    def _carried(self, prefix: str, about: str) -> list[Port]:
        return [Port(f"{prefix}carry/{name}", shape, "float32", about) for name, shape in self.carries.items()]

    def __call__(self, nets: Any, inputs: dict[str, Array]) -> tuple[Array, ...]:
        """Compute the outputs in order; `nets` are the acting networks as the algorithm calls them."""
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
        """Return the sequence of one step, as `training.recurrence` makes it; an episode's first step has no past."""
        action, reward, starts = (inputs[name] for name in PREVIOUS)
        xp = array_namespace(reward)
        none = _like(action, no_action(self.action, 1)[0])
        action = xp.where(xp.reshape(starts, (-1, *(1,) * (action.ndim - 1))), none, action)
        reward = xp.where(starts, xp.zeros_like(reward), self.algorithm.seen_reward(reward))
        return SequenceInput(
            obs={name: part[:, None] for name, part in obs.items()} if isinstance(obs, dict) else obs[:, None],
            previous_action=action[:, None],
            previous_reward=reward[:, None],
            starts=starts[:, None],
            carry={name: inputs[f"carry/{name}"] for name in self.carries},
            is_first=starts,
            query_steps=None,
        )

    def _scale(self, x: Array, moments: Moments) -> Array:
        """Scale as `running_stats.normalize`, but in float32, not float64: the mean is subtracted in two parts."""
        xp = array_namespace(x)
        x = x if x.dtype == xp.float32 else xp.astype(x, xp.float32)
        high = moments.mean.astype(np.float32)
        centered = (x - _like(x, high)) - _like(x, moments.mean - high)
        std = _like(centered, np.sqrt(moments.variance) + 1e-8)
        return xp.clip(centered / std, -self.clip, self.clip)

    def in_units(self, action: Array) -> tuple[Array, ...]:
        """Convert to the environment's actions, part by part; see `environments.ActionMap.to_environment`."""
        each = self.apart(action)
        return tuple(_in_units(part, each[name], self._dtype(self.action_dtypes[name])) for name, part in self.actions)

    def apart(self, action: Array) -> dict[str, Array]:
        """Split actions (N, columns), whose parts lie side by side, into parts by name; "" is the only part."""
        if not isinstance(self.action, Dict):
            return {"": action}
        ends = split_bounds([num_columns(part) for _, part in self.action.parts])
        return {name: action[:, low:high] for (name, _), (low, high) in zip(self.action.parts, ends, strict=True)}

    def as_given(self, obs: Tree) -> dict[str, np.ndarray]:
        """Convert a `VecEnv`'s observations (choices from 0) to the environment's own, the inputs."""
        obs, mask = masks.split_mask(obs)
        inputs = {} if mask is None else {MASK: mask}
        for name, part in self.observations.items():
            values = obs[_part(name)] if isinstance(obs, dict) else obs
            values = np.reshape(values, (-1, *_shape(part))).astype(_dtype(part))
            inputs[name] = values + _start(part).astype(_dtype(part))
        return inputs


def _part(name: str) -> str:
    """Return the part of an observation that an input is; "" is the only part."""
    return name.partition("/")[2]


def output(part: str) -> str:
    """Return the output's name for this part of an action; "" is the only part."""
    return f"{ACTION}/{part}" if part else ACTION


def _in_units(space: Any, action: Array, name: str) -> Array:
    """Convert to the environment's actions (N, ...) of one space, in the dtype of this name."""
    xp = array_namespace(action)
    dtype = getattr(xp, name)
    if isinstance(space, Box):
        center, half = (part.astype(np.float32) for part in space.units())
        low, high = _inside(*space.bounds)
        values = action * _like(action, half) + _like(action, center)
        values = xp.minimum(xp.maximum(values, _like(action, low)), _like(action, high))
        values = xp.round(values) if np.dtype(name).kind in "biu" else values
        return xp.reshape(xp.astype(values, dtype), (-1, *space.shape))
    choices = xp.astype(xp.reshape(action, (-1, *_shape(space))), dtype)
    return choices + _like(choices, _start(space))


def _inside(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round bounds to float32 inwards, so that an action at a bound is in the space of any dtype."""
    least, most = low.astype(np.float32), high.astype(np.float32)
    least = np.where(least.astype(np.float64) < low, np.nextafter(least, np.float32(np.inf)), least)
    return least, np.where(most.astype(np.float64) > high, np.nextafter(most, np.float32(-np.inf)), most)


def _counted(space: Any, x: Array) -> Array:
    """Return choices shifted to start at 0, and flattened to (N, n); numbers are unchanged."""
    if isinstance(space, Box):
        return x
    xp = array_namespace(x)
    x = x - _like(x, _start(space))
    return x if isinstance(space, Discrete) else xp.reshape(x, (-1, len(space.nvec)))


def _start(space: Any) -> np.ndarray:
    """Return the smallest choices of the environment's space, in its shape; zeros for numbers."""
    if isinstance(space, Box):
        return np.zeros(space.shape, np.int64)
    return np.reshape(space.start or np.zeros(np.prod(_shape(space), dtype=int), np.int64), _shape(space))


def _like(x: Array, constant: np.ndarray) -> Array:
    """Return the constant as an array of x's framework and dtype, with an axis for the environments."""
    return array_namespace(x).asarray(np.asarray(constant)[None].tolist(), dtype=x.dtype)


def _shape(space: Any) -> tuple[int, ...]:
    """Return the shape of the environment's arrays of this space."""
    match space:
        case Box():
            return space.shape
        case Discrete():
            return ()
        case MultiDiscrete():
            return space.shape or (len(space.nvec),)
    raise TypeError(f"There is no array of {space}.")


def _dtype(space: Any) -> str:
    return space.dtype if isinstance(space, Box) else "int64"
