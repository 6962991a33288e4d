"""Find the random generators of an environment; save, restore and seed them."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from inspect import getattr_static
from typing import Any

import gymnasium
import numpy as np

from duetto.errors import CheckpointError

Generator = np.random.Generator | np.random.RandomState | random.Random
Place = tuple[str, dict[str, Any], str]  # a path, and where the generator is: a dict of attributes and a name in it


def layers(env: gymnasium.Env) -> list[gymnasium.Env]:
    """Return the environment's wrappers, outermost first, then the environment itself."""
    found = [env]
    while isinstance(inside := getattr(found[-1], "env", None), gymnasium.Env):
        found.append(inside)
    return found


def places(env: gymnasium.Env) -> list[Place]:
    """Find the random generators in the attributes of a wrapper or environment, and those that its spaces have."""
    found: list[Place] = []
    spaces: dict[int, Place] = {}  # by identity, since wrappers share the environment's space
    for depth, layer in enumerate(layers(env)):
        own = [name for name, value in vars(layer).items() if isinstance(value, Generator)]
        found += [(f"{depth}/{name}", vars(layer), name) for name in own]
        for name, whole in _spaces(layer).items():
            for path, space in _parts(whole, f"{depth}/{name}"):
                if space._np_random is not None:
                    spaces.setdefault(id(space), (path, vars(space), "_np_random"))
    return found + list(spaces.values())


def _spaces(layer: gymnasium.Env) -> dict[str, gymnasium.Space]:
    both = {"action_space": layer.action_space, "observation_space": layer.observation_space}
    return both | {name: value for name, value in vars(layer).items() if isinstance(value, gymnasium.Space)}


def _parts(space: gymnasium.Space, path: str) -> Iterator[tuple[str, gymnasium.Space]]:
    """Yield a space and the spaces in it, each with a path."""
    yield path, space
    inside: Any = getattr(space, "spaces", ())
    for name, part in inside.items() if isinstance(inside, Mapping) else enumerate(inside):
        yield from _parts(part, f"{path}/{name}")


def save(found: Iterable[Place]) -> dict[str, Any]:
    """Return the state of the generator at each place that still has one, as arrays and JSON values by path."""
    return {
        path: _state_of(generator) for path, owner, name in found if isinstance(generator := owner.get(name), Generator)
    }


def load(env: gymnasium.Env, saved: dict[str, Any]) -> bool:
    """Set the generators to states from `save`, in place; return False if the environment lacks one of them.

    Makes `np_random` if it is missing: Gymnasium makes it only when it is first used.

    Raises:
        CheckpointError: A state is invalid.
    """
    for depth, layer in enumerate(layers(env)):
        if f"{depth}/_np_random" in saved and getattr(layer, "_np_random", None) is None:
            vars(layer)["_np_random"] = np.random.Generator(np.random.PCG64())
    known = {path: owner[name] for path, owner, name in places(env)}
    for path, state in saved.items():
        if path not in known:
            return False
        _set(known[path], state)
    return True


def _state_of(generator: Generator) -> dict[str, Any]:
    if isinstance(generator, np.random.Generator):
        return dict(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)  # type: ignore[return-value]
    version, words, gauss = generator.getstate()
    return {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}


def _set(generator: Generator, state: dict[str, Any]) -> None:
    """Set a generator to a state. Raises CheckpointError if the state is invalid, or of another kind of generator."""
    try:
        if isinstance(generator, random.Random):
            generator.setstate((state["version"], tuple(state["words"].tolist()), state["gauss"]))
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        else:
            generator.bit_generator.state = state
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"The saved state of a random generator is invalid ({error!r}).") from error


# ------------------------------------------------------------------------------------------- global generators
_GLOBAL = {"python": random._inst, "numpy": np.random.mtrand._rand}  # type: ignore[attr-defined]


def process_state() -> dict[str, Any]:
    """Return the states of the process's global generators, `random`'s and `np.random`'s."""
    return {name: _state_of(generator) for name, generator in _GLOBAL.items()}


def set_process_state(state: dict[str, Any]) -> None:
    """Set the process's global generators."""
    for name, generator in _GLOBAL.items():
        _set(generator, state[name])


@contextmanager
def preserve() -> Iterator[None]:
    """Restore the global generators of `random`, `np.random` and (if imported) PyTorch after the block or call."""
    torch = sys.modules.get("torch")
    state = process_state()
    try:
        devices = range(torch.cuda.device_count()) if torch and torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices) if torch else nullcontext():
            yield
    finally:
        set_process_state(state)


def seed(env: gymnasium.Env, number: int) -> None:
    """Seed the spaces of `env` and its wrappers. Spaces in class attributes are shared, so they are copied first."""
    for name in ("action_space", "observation_space"):
        shared = getattr_static(type(env.unwrapped), name, None)
        if name not in vars(env.unwrapped) and isinstance(shared, gymnasium.Space):
            setattr(env.unwrapped, name, copy.deepcopy(shared))
    for layer in layers(env):
        for space in _spaces(layer).values():
            space.seed(number)
