"""Packing a run to be sent: config, checkpoint and logs in a new folder, which is a run's folder itself.

It leaves out the replay memory and the environments' state, unless the memory is asked for; callbacks' states;
trackers' and TensorBoard's files; signatures, and paths on this machine (`places`). So its checkpoints are sealed anew.

An environment's state is all that its objects hold, so that a run goes on exactly: their keys and data sets, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from duetto.errors import CheckpointError, DuettoError
from duetto.runs.checkpoints import chosen
from duetto.runs.run import Run
from duetto.sharing.form import CONFIG, EVALUATIONS, METRICS
from duetto.sharing.places import bare_command, without_places
from duetto.storage import disk, segments, snapshot, within
from duetto.storage.checkpoint import Best, CheckpointStore, Loaded
from duetto.storage.manifest import Manifest
from duetto.storage.records import LARGEST
from duetto.storage.states import decode_tree, encode_tree
from duetto.storage.yaml_files import to_yaml

_BEST = f"{1:012}"


def pack(run: Run, folder: Path, checkpoint: str | int, metrics: bool, memory: bool) -> tuple[int, list[str]]:
    """Write the run into an empty folder; return the agent's step, and sentences on what differs from the run's folder.

    A whole checkpoint is included, and the best parameters if there are any, so that the run can be resumed.

    Raises:
        CheckpointError: The checkpoint that is asked for is damaged or not there.
    """
    store = CheckpointStore(run.path / "checkpoints")
    (folder / "checkpoints").mkdir()
    notices = _pack_config(run, folder / CONFIG)
    loaded = chosen(run.path, checkpoint) if checkpoint != "best" else store.load_latest(memory=False)
    assert isinstance(loaded, Loaded)
    notices += loaded.problems
    step = loaded.step
    try:
        best = store.load_best()
        _pack_state(best, folder / "checkpoints" / "best" / _BEST)
        step = best.step if checkpoint == "best" else step
    except CheckpointError:
        if checkpoint == "best":
            raise
    manifest = _pack_state(loaded, folder / "checkpoints" / snapshot.name(loaded.step), environments=memory)
    for name in (EVALUATIONS, *([METRICS] if metrics else [])):
        if (run.path / name).exists():
            disk.write_file(folder / name, within.read_file(run.path / name, LARGEST))
    notices += _pack_memory(run.path, folder, manifest, memory)
    return step, notices


def _pack_memory(run: Path, folder: Path, manifest: Manifest, wanted: bool) -> list[str]:
    needed = segments.needed(manifest)
    if needed and not wanted:
        size = sum(record.file.size for record in needed)
        return [
            f"The replay memory ({size:,} bytes) is not sent, so whoever goes on with the run begins with an "
            "empty one. --memory sends it."
        ]
    for record in needed:
        target = folder / "checkpoints" / "memory"
        target.mkdir(exist_ok=True)
        disk.write_file(target / record.file.name, record.file.read(run / "checkpoints" / "memory"))
    return []


def _pack_config(run: Run, path: Path) -> list[str]:
    values = run.config.to_dict()
    for part in (values["environment"], values["algorithm"].get("from", {}), values.get("from", {})):
        part.pop("signature", None)
    bare = without_places(values) | {"command": bare_command(values["command"])}
    disk.write_file(path, to_yaml(bare).encode())
    if not (changed := _differences(values, bare)):
        return []
    return [f"Of folders on this machine only the last name is sent: {', '.join(changed)}."]


def _differences(one: Any, other: Any, path: str = "") -> list[str]:
    if isinstance(one, dict):
        return [found for key in one for found in _differences(one[key], other[key], f"{path}.{key}" if path else key)]
    return [] if one == other else [path]


def _pack_state(loaded: Loaded | Best, target: Path, environments: bool = False) -> Manifest:
    """Write a checkpoint or best parameters without private data; return its manifest."""
    manifest, files = snapshot.read(loaded.path)
    state = {name: value for name, value in decode_tree("state", files).items() if name != "callbacks"}
    if "stepper" in state and not environments:  # who goes on from there begins new episodes
        state["stepper"] = state["stepper"] | {"environments": None}
    deciding = state.get("config", {})
    state = without_places(state) | {"config": {key: _bare_json(text) for key, text in deciding.items()}}
    files |= encode_tree("state", state)
    manifest = Manifest(manifest.step, snapshot.describe(files), manifest.memory)
    target.parent.mkdir(exist_ok=True)
    disk.move(snapshot.write(target, files, manifest), target)
    return manifest


def _bare_json(text: str) -> str:
    """A value of `storage.deciding`, JSON, without places. DuettoError if it is no JSON."""
    try:
        return json.dumps(without_places(json.loads(text)), ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DuettoError(f"The checkpoint's record of its config is damaged: {error}.") from error
