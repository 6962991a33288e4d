"""Save generators that environments draw from beside their own: their spaces', and the process's two global ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from duetto.environments import values
from duetto.environments.kept import Kept

_when_made: Kept[int] = Kept()


def remember(env: gymnasium.Env) -> None:
    """Note where the global generators are when this environment was just made.

    As long as nobody has drawn from them, they are not part of its state: two runs of one seed have equal checkpoints.
    """
    _when_made.set(env, _checksum())


def save(layers: list[gymnasium.Env], seen: values.Seen) -> dict[str, Any]:
    """Return the state of each space that was sampled from or seeded, and of `random` and `np.random` if used.

    Raises:
        NotSimpleError: Two spaces, or a space and its environment, share one generator.
    """
    used = {path: space._np_random for path, space in _spaces(layers) if space._np_random is not None}
    saved: dict[str, Any] = {"spaces": {path: values.encode(generator, seen) for path, generator in used.items()}}
    if _when_made.get(layers[0]) == _checksum():
        return saved
    version, words, gauss = random.getstate()
    saved["python"] = {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
    saved["numpy"] = values.encode(np.random.get_state(legacy=False), values.Seen())
    return saved


def load(layers: list[gymnasium.Env], saved: dict[str, Any]) -> None:
    """Restore what `save` returned."""
    for path, space in _spaces(layers):
        if path in saved["spaces"]:
            space._np_random = values.decode(saved["spaces"][path])
    if "python" in saved:
        python = saved["python"]
        random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
        np.random.set_state(values.decode(saved["numpy"]))
        _when_made.forget(layers[0])  # they are used: saved from here on


def are_drawn_from(saved: Any) -> bool:
    """Whether a saved state of environments holds the process's global generators anywhere."""
    if isinstance(saved, dict):
        return {"python", "numpy", "spaces"} <= saved.keys() or any(map(are_drawn_from, saved.values()))
    return isinstance(saved, list | tuple) and any(map(are_drawn_from, saved))


def _checksum() -> int:
    """Return a hash of both global generators' states, valid in this process alone."""
    numpy: Any = np.random.get_state()
    return hash((random.getstate(), numpy[1].tobytes(), numpy[2:]))


def _spaces(layers: Iterable[gymnasium.Env]) -> Iterator[tuple[str, gymnasium.Space]]:
    """Yield every space once, with a path to it."""
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
