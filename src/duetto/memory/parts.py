"""States, segments, batches and steps of a memory in parts, each of some of the environments, and put together again.

What is put together is what one memory of all environments would have written, so a checkpoint does not know whether
there were parts, and may be taken up by any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from duetto.errors import CheckpointError
from duetto.memory.base import Experience
from duetto.memory.carries import PREFIX

State = dict[str, Any]
Segment = dict[str, np.ndarray]
_OF_ROWS = ("start", "count", "carry_env", "carry_number")


def join_states(states: Sequence[State], shares: Sequence[range], rows: int) -> State:
    """Join parts' states into one memory's; the caller replaces how it draws and what is due, which are the first's."""
    if "judged" in states[0]:
        judged = [state["judged"] for state in states]
        states = [states[0] | {"judged": _joined(judged, judged[0])}, *states[1:]]
    if "shape" in states[0]:
        return _join_sequences(states, shares, rows)
    cuts = [
        [env + share.start, number]
        for state, share in zip(states, shares, strict=True)
        for env, number in state["cuts"]
    ]
    return states[0] | _joined(states, ("written", "mass")) | {"cuts": cuts}


def take_state(state: State, share: range, rows: int) -> State:
    """Return the part of a state for the environments `share`. CheckpointError where it cannot be cut."""
    try:
        if state.get("judged") is not None:
            state = state | {"judged": {name: _rows(part, share) for name, part in state["judged"].items()}}
        if "shape" in state:
            return _take_sequences(state, share, rows)
        masses = {"mass": _rows(state["mass"], share, rows)} if "mass" in state else {}
        cuts = [[env - share.start, number] for env, number in state["cuts"] if env in share]
        return state | masses | {"written": _rows(state["written"], share), "cuts": cuts}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"What should be the state of a memory is none ({error!r}).") from error


def _join_sequences(states: Sequence[State], shares: Sequence[range], rows: int) -> State:
    first, sequences, episodes = states[0], [s["sequences"] for s in states], [s["episodes"] for s in states]
    index = [one["index"] + share.start * rows for one, share in zip(sequences, shares, strict=True)]
    newest = [one["newest"] for one in episodes]
    return (
        first
        | _joined(states, ("made", "gone"))
        | {
            "shape": first["shape"] | {"environments": sum(map(len, shares))},
            "episodes": _joined(episodes, ("written", "running", "steps")) | {"newest": _joined(newest, newest[0])},
            "sequences": _joined(sequences, ("real", "fresh")) | {"index": np.concatenate(index)},
            "draws": first["draws"] | _joined([state["draws"] for state in states], ("mass",)),
            "carry": next((state["carry"] for state in states if state["carry"]), {}),
        }
    )


def _take_sequences(state: State, share: range, rows: int) -> State:
    episodes, sequences, draws = state["episodes"], state["sequences"], state["draws"]
    index = sequences["index"]
    own = slice(*index.searchsorted([share.start * rows, share.stop * rows]).tolist())
    masses = {"mass": draws["mass"][own]} if "mass" in draws else {}
    newest = {name: _rows(part, share) for name, part in episodes["newest"].items()}
    return state | {
        "shape": state["shape"] | {"environments": len(share)},
        "episodes": {name: _rows(episodes[name], share) for name in ("written", "running", "steps")}
        | {"newest": newest},
        "made": _rows(state["made"], share),
        "gone": _rows(state["gone"], share),
        "sequences": {name: part[own] for name, part in sequences.items()} | {"index": index[own] - share.start * rows},
        "draws": draws | masses,
    }


def join_segments(segments: Sequence[Segment | None], written: Sequence[np.ndarray]) -> Segment | None:
    """Join parts' segments into one memory's; `written` are the parts' counts. None where no part has any rows."""
    there = [segment for segment in segments if segment is not None]
    if not there:
        return None
    filled = [
        {"start": own, "count": np.zeros_like(own)} if segment is None else segment
        for segment, own in zip(segments, written, strict=True)
    ]
    carried = [segment for segment in there if "carry_env" in segment]
    begins = np.cumsum([0, *map(len, written)]).tolist()
    env = [s["carry_env"] + begin for s, begin in zip(filled, begins, strict=False) if "carry_env" in s]
    fields = [name for name in there[0] if name not in _OF_ROWS and not name.startswith(PREFIX)]
    names = ["carry_number", *(name for name in carried[0] if name.startswith(PREFIX))] if carried else []
    return (
        _joined(filled, ("start", "count"))
        | _joined(there, fields)
        | _joined(carried, names)
        | ({"carry_env": np.concatenate(env)} if carried else {})
    )


def take_segment(segment: Segment, share: range) -> Segment | None:
    """Return the part of a segment for the environments `share`; None without rows. CheckpointError where it cannot be
    cut.
    """
    try:
        before, rows = int(segment["count"][: share.start].sum()), int(_rows(segment["count"], share).sum())
        if rows == 0:
            return None
        env = segment.get("carry_env")
        carried = np.zeros(0, bool) if env is None else (env >= share.start) & (env < share.stop)

        def cut(name: str, array: np.ndarray) -> np.ndarray:
            if name in ("start", "count"):
                return _rows(array, share)
            return array[carried] if name.startswith("carry") else array[before : before + rows]

        own = {name: cut(name, array) for name, array in segment.items()}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"What should be a segment of a memory is none ({error!r}).") from error
    if not carried.any():
        return {name: array for name, array in own.items() if not name.startswith("carry")}
    return own | {"carry_env": own["carry_env"] - share.start}


def scattered(trees: Sequence[Any], rows: Sequence[np.ndarray]) -> Any:
    """Copy `trees` of arrays into one, each to its `rows` there.

    Parts that a tree lacks, such as recurrent states where none was kept, are zeros in its rows.
    """
    some = next((tree for tree in trees if tree is not None), None)
    if some is None:
        return None
    if isinstance(some, dict):
        return {name: scattered([tree.get(name) for tree in trees], rows) for name in max(trees, key=len)}
    if isinstance(some, tuple):
        return type(some)(*(scattered(parts, rows) for parts in zip(*trees, strict=True)))
    whole = np.zeros((sum(map(len, rows)), *some.shape[1:]), some.dtype)
    for tree, own in zip(trees, rows, strict=True):
        if tree is not None:
            whole[own] = tree
    return whole


def size(experience: Experience) -> int:
    """Return the bytes of all arrays in `experience`."""

    def bytes_of(value: Any) -> int:
        return sum(map(bytes_of, value.values())) if isinstance(value, Mapping) else value.nbytes

    return sum(map(bytes_of, experience))


def _rows(array: np.ndarray, share: range, each: int = 1) -> np.ndarray:
    return array[share.start * each : share.stop * each]


def _joined(parts: Sequence[dict[str, np.ndarray]], names: Iterable[str]) -> dict[str, np.ndarray]:
    """Concatenate the parts' arrays of these names; names that the first part lacks are left out."""
    return {name: np.concatenate([part[name] for part in parts]) for name in names if name in parts[0]}
