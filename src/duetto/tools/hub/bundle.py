"""Pack a run: config, checkpoint and logs in a new folder, which is a run's folder itself.

Left out are the replay memory and the environments' states, unless the memory is wanted; callbacks' states; trackers'
and TensorBoard's files; signatures, and paths on this machine (`private_paths`). So the checkpoints get new checksums.

An environment's state contains all attributes of its objects, possibly keys and data sets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from duetto.errors import CheckpointError, DuettoError
from duetto.runs.checkpoints import chosen
from duetto.runs.run import Run
from duetto.storage import atomic_io, safe_open
from duetto.storage.checkpoint import CheckpointStore, Loaded, folder_name
from duetto.storage.logs import LARGEST
from duetto.storage.manifest import Manifest, read_folder, write_folder
from duetto.storage.safe_yaml import to_yaml
from duetto.storage.tree_codec import decode_tree, encode_tree
from duetto.tools.hub.file_rules import CONFIG, EVALUATIONS, METRICS
from duetto.tools.hub.private_paths import bare_command, without_places


def pack(run: Run, folder: Path, checkpoint: str | int, memory: bool) -> tuple[int, list[str]]:
    """Write the run into an empty folder; return the agent's step, and notices on differences from the run's folder.

    A whole checkpoint is included, and the best parameters if there are any, so that the run can be resumed.

    Raises:
        CheckpointError: The checkpoint is damaged or missing.
    """
    store = CheckpointStore(run.path / "checkpoints")
    (folder / "checkpoints").mkdir()
    notices = _pack_config(run, folder / CONFIG)
    loaded = chosen(run.path, checkpoint) if checkpoint != "best" else store.load_latest(memory=False)
    notices += loaded.problems
    step = loaded.step
    try:
        best = store.load_best()
        _pack_state(best, folder / "checkpoints" / "best" / f"{best.step:012}")
        step = best.step if checkpoint == "best" else step
    except CheckpointError:
        if checkpoint == "best":
            raise
    manifest = _pack_state(loaded, folder / "checkpoints" / folder_name(loaded.step), environments=memory)
    for name in (EVALUATIONS, METRICS):
        if (run.path / name).exists():
            atomic_io.write_file(folder / name, safe_open.read_file(run.path / name, LARGEST))
    notices += _pack_memory(run.path, folder, manifest, memory)
    return step, notices


def _pack_memory(run: Path, folder: Path, manifest: Manifest, wanted: bool) -> list[str]:
    needed = manifest.segments
    if needed and not wanted:
        size = sum(record.file.size for record in needed)
        return [
            f"The replay memory ({size:,} bytes) is not sent, so the run cannot be resumed from there. --memory "
            "sends it."
        ]
    for record in needed:
        target = folder / "checkpoints" / "memory"
        target.mkdir(exist_ok=True)
        atomic_io.write_file(target / record.file.name, record.file.read(run / "checkpoints" / "memory"))
    return []


def _pack_config(run: Run, path: Path) -> list[str]:
    values = run.config.to_dict()
    values.pop("signature", None)
    bare = without_places(values) | {"command": bare_command(values["command"])}
    atomic_io.write_file(path, to_yaml(bare).encode())
    if not (changed := _differences(values, bare)):
        return []
    return [f"Only the last name of paths on this machine is sent: {', '.join(changed)}."]


def _differences(values: Any, others: Any, path: str = "") -> list[str]:
    """Return the keys, with "." between levels, whose values differ."""
    if isinstance(values, dict):
        paths = {key: f"{path}.{key}" if path else key for key in values}
        return [name for key in values for name in _differences(values[key], others[key], paths[key])]
    return [] if values == others else [path]


def _pack_state(loaded: Loaded, target: Path, environments: bool = False) -> Manifest:
    """Write a checkpoint or best parameters without private data; return its manifest."""
    manifest, files = read_folder(loaded.path)
    state = {name: value for name, value in decode_tree("state", files).items() if name != "callbacks"}
    if "stepper" in state and not environments:  # a resumed run starts new episodes
        state["stepper"] = state["stepper"] | {"environments": None}
    deciding = state.get("config", {})
    state = without_places(state) | {"config": {key: _bare_json(text) for key, text in deciding.items()}}
    files |= encode_tree("state", state)
    manifest = Manifest.of(manifest.step, files, manifest.segments)
    target.parent.mkdir(exist_ok=True)
    atomic_io.move(write_folder(target, files, manifest), target)
    return manifest


def _bare_json(text: str) -> str:
    """Return a JSON text of `storage.reproducibility` without private paths. DuettoError if it is no JSON."""
    try:
        return json.dumps(without_places(json.loads(text)), ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DuettoError(f"The checkpoint's record of its config is damaged: {error}.") from error
