"""Fake replay buffers and states for tests of checkpoints: each row contains its branch, environment and index."""

from pathlib import Path
from typing import Any

import numpy as np

from duetto.storage.checkpoint import CheckpointStore, Loaded

NUM_ENVS = 2


class FakeMemory:
    """Each environment's newest `rows` rows; row i of environment e on a branch holds (branch, e, i)."""

    def __init__(self, rows: int = 40, branch: int = 0, written: np.ndarray | None = None):
        self.rows = rows
        self.branch = branch
        self.written = np.zeros(NUM_ENVS, np.int64) if written is None else written

    def add(self, *counts: int) -> None:
        self.written = self.written + np.array(counts, np.int64)

    @property
    def oldest(self) -> np.ndarray:
        return self.written - self.rows

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray]:
        start = np.maximum(since, self.written - self.rows)
        rows = [
            np.array([[self.branch, env, i] for i in range(start[env], self.written[env])]).reshape(-1, 3)
            for env in range(NUM_ENVS)
        ]
        return {"start": start, "count": self.written - start, "obs/rows": np.concatenate(rows).astype(np.int32)}


def state_at(step: int, branch: int = 0) -> dict[str, Any]:
    weights = np.random.default_rng([step, branch]).normal(size=(3, 4)).astype(np.float32)
    return {"branch": branch, "step": step, "critic": {"layers.0.weight": weights}, "log": [step * 0.1, None]}


def save(store: CheckpointStore, memory: FakeMemory, step: int, branch: int = 0) -> Path:
    return store.save(step, state_at(step, branch), memory.segment(store.covered), memory.oldest)


def remembered(loaded: Loaded) -> list[list[tuple[int, ...]]]:
    """Return (branch, i) of each environment's rows, in order; rows of later segments replace earlier rows."""
    rows: list[dict[int, int]] = [{} for _ in range(NUM_ENVS)]
    for segment in loaded.segments:
        for branch, env, i in segment["obs/rows"].tolist():
            rows[env][i] = branch
    return [[(branch, i) for i, branch in sorted(env.items())] for env in rows]


def has_all_rows(loaded: Loaded, written: np.ndarray, rows: int, branch: int = 0) -> bool:
    wanted = [[(branch, i) for i in range(max(w - rows, 0), w)] for w in written.tolist()]
    return all(have[-len(want) :] == want for have, want in zip(remembered(loaded), wanted, strict=True) if want)


def same(one: object, other: object) -> bool:
    """Return whether two trees are equal in type and in every bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    return one == other


def segment_names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in (store.folder / "memory").iterdir())


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << position % 8
    path.write_bytes(data)


def reopened(store: CheckpointStore) -> CheckpointStore:
    return restart(store.folder)


def restart(folder: Path) -> CheckpointStore:
    return CheckpointStore(folder, num_envs=NUM_ENVS)


def run_at_200(folder: Path) -> tuple[CheckpointStore, FakeMemory]:
    """Save three checkpoints; the next save will remove the oldest checkpoint and its segments."""
    store = CheckpointStore(folder, num_envs=NUM_ENVS)
    memory = FakeMemory(rows=15)
    for step in (0, 100, 200):
        memory.add(10, 9)
        save(store, memory, step)
    store.save_best(100, state_at(100), {"mean_return": 1.0})
    return store, memory
