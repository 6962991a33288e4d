"""Malicious run folders with correct checksums. SECURITY.md lists the promises.

Reading it gives an error for the user or a result. It changes nothing outside the folder, imports no module that the
folder names, and uses no more memory than the limit in `sandbox`.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import victims
import yaml
from sandbox import Verdict

from duetto.storage.manifest import MANIFEST

NASTY = "\x1b]0;title\x07\x9b2J\u202egnp\u2066\r"
LEAVES: list[Any] = [
    *(None, True, False, 0, -1, 1, 7, 0.5, -1e308, float("nan"), float("inf"), "", "x", "../../outside", [], {}),
    *(2**31, 2**53 + 1, 2**62, 2**63, -(2**70), 10**400, 80_000_000_000, [0], {"a": 1}, NASTY),
]
Random = np.random.Generator


def nonsense(tree: Any, random: Random, leaves: list[Any] = LEAVES) -> tuple[Any, str]:
    """Return a copy with one to three values replaced or removed, and a description."""
    tree, told = copy.deepcopy(tree), []
    for _ in range(int(random.integers(1, 4))):
        places = _places(tree)
        if not places:
            break
        *above, last = places[random.integers(len(places))]
        holder = tree
        for key in above:
            holder = holder[key]
        if random.random() < 0.2:
            del holder[last]
            told.append(f"{'/'.join(map(str, (*above, last)))} taken out")
        else:
            holder[last] = copy.deepcopy(leaves[random.integers(len(leaves))])
            told.append(f"{'/'.join(map(str, (*above, last)))} = {str(holder[last])[:20]!r}")
    return tree, ", ".join(told)


def _places(tree: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:4]) if isinstance(tree, list) else ()
    return [place for key, value in items for place in [(*prefix, key), *_places(value, (*prefix, key))]]


# ---------------------------------------------------------------------------------------------------- contents
def state(run: Path, random: Random) -> str:
    folder = [hostile.checkpoint(run), hostile.checkpoint(run), hostile.best(run)][random.integers(3)]
    tree, told = nonsense(hostile.state_of(folder), random)
    try:
        hostile.put_state(folder, tree)
    except TypeError:  # a value that no state can hold
        return f"nothing, for no state can hold {told}"
    return f"{folder.name}/state.json: {told}"


def manifest(run: Path, random: Random) -> str:
    folder = [hostile.checkpoint(run), hostile.best(run)][random.integers(2)]
    written = json.loads((folder / MANIFEST).read_bytes())["content"]
    tree, told = nonsense(written, random)
    hostile.reseal(folder, change=lambda content: content.clear() or content.update(tree))
    return f"{folder.name}/{MANIFEST}: {told}"


def config(run: Path, random: Random) -> str:
    values = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    small = [
        leaf for leaf in LEAVES if not (isinstance(leaf, int) and abs(leaf) > 100)
    ]  # large values can be valid and slow
    tree, told = nonsense(values, random, small)
    (run / "config.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True), "utf-8")
    return f"config.yaml: {told}"


def yaml_file(run: Path, random: Random) -> str:
    texts = {
        "an object": "!!python/object/apply:os.mkdir [../../outside/made]\n",
        "aliases": "\n".join(
            ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
            + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
        ),
        "depth": "[" * 50_000,
        "no text": "\x00\x01",
        "a number": "7",
    }
    name = list(texts)[random.integers(len(texts))]
    (run / "config.yaml").write_text(texts[name], "utf-8")
    return f"config.yaml: {name}"


def segment(run: Path, random: Random) -> str:
    if not any((run / "checkpoints").glob("memory/segment-*")):
        return state(run, random)
    told = ""

    def change(arrays: dict[str, np.ndarray]) -> None:
        nonlocal told
        name = sorted(arrays)[random.integers(len(arrays))]
        match random.integers(4):
            case 0:
                del arrays[name]
            case 1:
                arrays[name] = np.full(random.integers(0, 4, 2), 7).astype(["u1", "i8", "f4"][random.integers(3)])
            case 2:
                arrays[name] = arrays[name][:-1]
            case _:
                arrays[name] = np.full_like(arrays[name], [0, 1, 100][random.integers(3)])
        told = f"a segment's {name} became {arrays[name].shape if name in arrays else 'nothing'}"
        for claim in ("start", "count"):
            if random.random() < 0.2 and len(arrays.get(claim, ())):
                arrays[claim][:] = [-5, 2**62, 80_000_000_000][random.integers(3)]
                told += f", its {claim} {arrays[claim][0]}"

    hostile.change_segment(run, change)
    return told


def header(run: Path, random: Random) -> str:
    """Write a safetensors header that claims more data than the file has."""
    folder = [hostile.checkpoint(run), hostile.best(run)][random.integers(2)]
    path = folder / "state.safetensors"
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    entries = json.loads(data[8 : 8 + length])
    name = sorted(entries)[random.integers(len(entries))]
    huge = int([2**40, 2**62, 2**33][random.integers(3)])
    match random.integers(3):
        case 0:
            entries[name]["shape"] = [huge]
        case 1:
            entries[name]["data_offsets"] = [0, huge]
        case _:
            length = huge
    text = json.dumps(entries).encode()
    hostile.reseal(folder, {path.name: struct.pack("<Q", len(text) if length != huge else huge) + text + data[8:]})
    return f"{folder.name}/state.safetensors: {name} claims {huge}"


def vast(run: Path, random: Random) -> str:
    """Grow a file to a terabyte, as a sparse file."""
    files = ["config.yaml", "metrics.jsonl", "evaluations.csv", ".lock", "checkpoints"]
    path = run / files[random.integers(5)]
    if path.is_dir():
        path = hostile.checkpoint(run) / ["state.json", "state.safetensors", MANIFEST][random.integers(3)]
    with path.open("ab") as file:
        file.truncate(2**40)
    return f"{path.name} of a terabyte"


def text(run: Path, random: Random) -> str:
    """Put control characters into texts that are printed."""
    values = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    part, name = [
        *(("environment", "id"), ("algorithm", "name"), ("run", "backend"), ("run", NASTY), ("", "command")),
        *(("", "preset"), ("versions", "torch"), ("environment", "options"), ("algorithm", NASTY)),
    ][random.integers(9)]
    (values[part] if part else values)[name] = {NASTY: NASTY} if name == "options" else NASTY
    (run / "config.yaml").write_text(yaml.safe_dump(values), "utf-8")
    if random.random() < 0.3:
        with (run / "evaluations.csv").open("r+", encoding="utf-8") as file:
            file.write(NASTY)
    return f"config.yaml: control characters in {part or 'its'} {name!r}"


# ---------------------------------------------------------------------------------------------------- links, imports
def link(run: Path, random: Random) -> str:
    """Replace a file or folder by a link to the outside."""
    names = [".lock", "metrics.jsonl", "evaluations.csv", "config.yaml", ".tmp-config.yaml", "tensorboard", "videos"]
    names += ["checkpoints", "checkpoints/memory", "checkpoints/best", "checkpoints/.tmp-x", "before", "tensorboard/x"]
    names += [str(path.relative_to(run)) for path in sorted(run.glob("checkpoints/**/*")) if path.is_file()]
    path = run / names[random.integers(len(names))]
    outside = run.parents[1] / "outside"
    if path.is_dir():
        shutil.rmtree(path)
        path.symlink_to(outside)
        return f"{path.relative_to(run)} leads to a folder outside"
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name in ("videos", ".tmp-x", "before", "tensorboard", "x"):
        path.symlink_to(outside)
    elif random.random() < 0.5:
        path.symlink_to(outside / "mine.txt")
    else:
        path.hardlink_to(outside / "mine.txt")
    return f"{path.relative_to(run)} leads outside"


def pipe(run: Path, random: Random) -> str:
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    path = files[random.integers(len(files))]
    path.unlink()
    os.mkfifo(path)
    return f"{path.relative_to(run)} is a pipe"


def module(run: Path, random: Random) -> str:
    """Name an environment whose module creates a file when it is imported."""
    marks = "import pathlib; (pathlib.Path(__file__).parents[1] / 'outside' / 'imported').write_text('!')\n"
    (run.parent / "evilmod.py").write_text(marks)
    sys.path.insert(0, str(run.parent))
    values = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    which = random.integers(3)
    if which == 0:
        values["environment"]["id"] = "evilmod:Pendulum-v1"
    elif which == 1:
        values["environment"]["options"] = {"env_id": "evilmod:Pendulum-v1"}
    else:
        values["environment"] |= {"id": "evilmod:Pendulum-v1"}
        values["signature"] = "0" * 64
    (run / "config.yaml").write_text(yaml.safe_dump(values), "utf-8")
    for folder in (hostile.checkpoint(run), hostile.best(run)):
        tree = hostile.state_of(folder)
        if "run" in tree:
            tree["run"]["environment"] = values["environment"]["id"]
            hostile.put_state(folder, tree)
    return f"config.yaml: {values['environment']['id']}, {values['environment']['options']}"


DEEDS = (state, state, state, manifest, config, yaml_file, segment, header, vast, text, link, link, pipe, module)


# ---------------------------------------------------------------------------------------------------- readers
def readers(random: Random) -> tuple[str, Callable[[Path], Any]]:
    checkpoint = ["last", "best"][random.integers(2)]
    return [
        ("resume", lambda folder: victims.resume(folder, accept_changes=True)),
        ("resume", lambda folder: victims.resume(folder, accept_changes=True)),
        (f"load {checkpoint}", lambda folder: victims.act(folder, checkpoint)),
        (f"duetto evaluate {checkpoint}", lambda folder: _command("evaluate", folder, "--checkpoint", checkpoint)),
        ("duetto resume", lambda folder: _command("resume", folder)),
        (f"duetto video {checkpoint}", lambda folder: _command("video", folder, "--checkpoint", checkpoint)),
        ("plot", victims.plot),
    ][random.integers(7)]


def _command(name: str, folder: Path, *arguments: str) -> None:
    """Run a command; `sandbox` checks its output. Exit code 1 is a failure, 2 a mistake in the call."""
    from duetto.tools.cli import main

    try:
        main([name, str(folder), *arguments])
    except SystemExit as leaving:
        if leaving.code not in (0, 1, 2):
            raise ValueError(f"exit code {leaving.code}") from leaving


def case(place: Path, victim: Path, random: Random, tell: Callable[[str, str, str], None]) -> Verdict:
    """Change a folder maliciously, and read it."""
    folder = victims.copy(victim, place / "home")
    tell("run", "", "")
    deed = DEEDS[random.integers(len(DEEDS))]
    done = deed(folder, random)
    reading, read = readers(random)
    tell(f"run: {deed.__name__}", done.encode("unicode_escape").decode(), reading)
    os.chdir(place / "home")
    read(folder)
    return Verdict("worked")
