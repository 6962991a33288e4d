"""Small run folders that tests change as an attacker could, with valid manifests for the changed files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from small_runs import train

from duetto.algorithms import PPO, TD3, Algorithm
from duetto.storage.manifest import MANIFEST, FileRecord
from duetto.storage.tree_codec import decode_arrays, decode_tree, encode_arrays, encode_tree

_SIZES = {"hidden": (4,), "batch_size": 4, "random_steps": 4, "learning_starts": 4, "replay_capacity": 24}
ALGORITHMS: dict[str, tuple[Algorithm, str]] = {
    "td3": (TD3(**_SIZES, prioritized=True, normalize_observations="sampled"), "Pendulum-v1"),
    "ppo": (PPO(hidden=(4,), rollout_steps=6, epochs=1, minibatches=1), "CartPole-v1"),
}


def make(parent: Path, name: str) -> Path:
    """Train 20 steps; return the run's folder, with a checkpoint, best parameters, metrics and evaluations."""
    algorithm, environment = ALGORITHMS[name]
    options = {"steps": 20, "evaluate_every": 10, "checkpoint_every": 10, "log_every": 5}
    return train(parent, algorithm, environment, **options).path


def checkpoint(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def best(run: Path) -> Path:
    return max((run / "checkpoints" / "best").iterdir())


def reseal(
    folder: Path, files: dict[str, bytes] | None = None, change: Callable[[dict], None] = lambda _: None
) -> None:
    """Write files into a checkpoint's folder, and a manifest that matches all its files."""
    for name, data in (files or {}).items():
        (folder / name).write_bytes(data)
    content = json.loads((folder / MANIFEST).read_bytes())["content"]
    records = [FileRecord.of(record["name"], (folder / record["name"]).read_bytes()) for record in content["files"]]
    content["files"] = [vars(record) for record in records]
    for segment in content["segments"]:
        name = segment["file"]["name"]
        segment["file"] = vars(FileRecord.of(name, (folder.parent / "memory" / name).read_bytes()))
    change(content)
    sha256 = hashlib.sha256(_canonical(content)).hexdigest()
    (folder / MANIFEST).write_bytes(_canonical({"content": content, "sha256": sha256}))


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def state_of(folder: Path) -> dict[str, Any]:
    return decode_tree("state", {path.name: path.read_bytes() for path in folder.iterdir()})


def put_state(folder: Path, state: dict[str, Any]) -> None:
    reseal(folder, encode_tree("state", state))


def change_segment(run: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    path = max((run / "checkpoints" / "memory").iterdir())
    arrays = decode_arrays(path.read_bytes())
    change(arrays)
    path.write_bytes(encode_arrays(arrays))
    reseal(checkpoint(run))


def copy(run: Path, parent: Path) -> Path:
    target = parent / "run"
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(run, target)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return link count and bytes of every file in a folder, to check that nothing changed."""
    return {
        str(path.relative_to(folder)): (os.lstat(path).st_nlink, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
