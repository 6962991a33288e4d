"""The random generators that an environment draws from: found by one rule, saved and set again, seeded, preserved."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import gymnasium
import numpy as np

from duetto.errors import CheckpointError

Generator = np.random.Generator | np.random.RandomState | random.Random
Place = tuple[str, dict[str, Any], str]  # a path, and the attributes and the name where the generator is


def layers(env: gymnasium.Env) -> list[gymnasium.Env]:
    """Return the environment's layers, outermost first, by following `env`."""
    found = [env]
    while isinstance(inside := getattr(found[-1], "env", None), gymnasium.Env):
        found.append(inside)
    return found


def places(env: gymnasium.Env) -> list[Place]:
    """Find the generators among the attributes of each layer."""
    found: list[Place] = []
    for depth, layer in enumerate(layers(env)):
        own = [name for name, value in vars(layer).items() if isinstance(value, Generator)]
        found += [(f"{depth}/{name}", vars(layer), name) for name in own]
    return found


def save(found: Iterable[Place]) -> dict[str, Any]:
    """Return the states of the generators that are there, as arrays and JSON values."""
    return {
        path: _state_of(generator) for path, owner, name in found if isinstance(generator := owner.get(name), Generator)
    }


def load(env: gymnasium.Env, saved: dict[str, Any]) -> bool:
    """Set the generators to states from `save`, in place; return False if the environment lacks one.

    A missing `np_random`, which Gymnasium makes when it is first used, is made.

    Raises:
        CheckpointError: A state is none.
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
    """Set a generator to a state. Raises CheckpointError if that is none, or of another kind of generator."""
    try:
        if isinstance(generator, random.Random):
            generator.setstate((state["version"], tuple(state["words"].tolist()), state["gauss"]))
        elif isinstance(generator, np.random.RandomState):
            generator.set_state(state)
        else:
            generator.bit_generator.state = state
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"What should be a random generator's state is none ({error!r}).") from error


@contextmanager
def preserve() -> Iterator[None]:
    """Preserve the process's global generators: `random`'s, `np.random`'s, and PyTorch's if it is imported."""
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()
    try:
        devices = range(torch.cuda.device_count()) if torch and torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices) if torch else nullcontext():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def seed(env: gymnasium.Env, number: int) -> None:
    """Seed the spaces of an environment and its wrappers, otherwise seeded by the clock. No state includes them."""
    for layer in layers(env):
        layer.action_space.seed(number)
        layer.observation_space.seed(number)
