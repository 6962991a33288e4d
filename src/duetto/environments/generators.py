"""Generators that environments draw from beside their own: their spaces', and the process's two global ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from duetto.environments import values


def save(layers: Iterable[gymnasium.Env], seen: values.Seen) -> dict[str, Any]:
    """The state of `random` and `np.random`, and of each space that has been sampled from or seeded.

    Raises:
        NotSimpleError: Two spaces, or a space and its environment, share one generator.
    """
    version, words, gauss = random.getstate()
    used = {path: space._np_random for path, space in _spaces(layers) if space._np_random is not None}
    return {
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
        "numpy": values.encode(np.random.get_state(legacy=False), values.Seen()),
        "spaces": {path: values.encode(generator, seen) for path, generator in used.items()},
    }


def load(layers: Iterable[gymnasium.Env], saved: dict[str, Any]) -> None:
    """Undo `save`."""
    for path, space in _spaces(layers):
        if path in saved["spaces"]:
            space._np_random = values.decode(saved["spaces"][path])
    python = saved["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(values.decode(saved["numpy"]))


def _spaces(layers: Iterable[gymnasium.Env]) -> Iterator[tuple[str, gymnasium.Space]]:
    """Every space once, with a path to it."""
    known: set[int] = set()
    for depth, layer in enumerate(layers):
        own = {name: value for name, value in vars(layer).items() if isinstance(value, gymnasium.Space)}
        if not isinstance(layer, gymnasium.Wrapper):  # they may be the class's; a wrapper's are the environment's
            own |= {"action_space": layer.action_space, "observation_space": layer.observation_space}
        for name, space in own.items():
            for path, part in _parts(space, f"{depth}/{name}"):
                if id(part) not in known:
                    known.add(id(part))
                    yield path, part


def _parts(space: gymnasium.Space, path: str) -> Iterator[tuple[str, gymnasium.Space]]:
    yield path, space
    match space:
        case spaces.Dict():
            inside = dict(space.spaces)
        case spaces.Tuple() | spaces.OneOf():
            inside = dict(enumerate(space.spaces))
        case spaces.Sequence():
            inside = {"feature": space.feature_space}
        case spaces.Graph():
            inside = {"node": space.node_space, "edge": space.edge_space}
        case _:
            return
    for name, part in inside.items():
        if part is not None:
            yield from _parts(part, f"{path}/{name}")
