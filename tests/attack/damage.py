"""Damage: one file of a run, or of its demonstrations, is damaged; then the run is read. Allowed outcomes:

- an error for the user, and all files are unchanged
- the result of the undamaged run, bit for bit
- another result with a notice that names the damaged file or its checkpoint; no readable line of a log is lost
- another result because an option changed that may change, such as `steps` in config.yaml

`config_case` changes a key of config.yaml instead. If it affects the numbers, the change is refused or reported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import victims
import yaml
from sandbox import Verdict, contents
from small_runs import differences
from victims import Seen

from duetto.errors import DuettoError
from duetto.storage.logs import Csv, JsonLines

Tell = Callable[[str, str, str], None]  # gets the place, the change and the reader

LOGS = {"metrics.jsonl": JsonLines.scan, "evaluations.csv": Csv.scan}
_SNAPSHOT = re.compile(r"(step-)?\d{12}")
# Keys of config.yaml that do not affect the numbers; written here, not taken from Duetto.
FREE = {
    *("run/steps", "run/evaluate_every", "run/evaluation_episodes", "run/checkpoint_every", "run/log_every"),
    *("run/threads", "run/vectorization", "preset", "command", "versions"),
}


# ---------------------------------------------------------------------------------------------------- damage
def flip(path: Path, random: np.random.Generator) -> str:
    data = bytearray(path.read_bytes())
    if not data:
        return append(path, random)
    at, bit = int(random.integers(len(data))), int(random.integers(8))
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at} flipped"


def overwrite(path: Path, random: np.random.Generator) -> str:
    data = bytearray(path.read_bytes())
    at, length = int(random.integers(len(data) + 1)), int(random.integers(1, 64))
    data[at : at + length] = random.bytes(length)
    path.write_bytes(data)
    return f"{length} bytes from {at} overwritten"


def truncate(path: Path, random: np.random.Generator) -> str:
    length = int(random.integers(path.stat().st_size + 1))
    os.truncate(path, length)
    return f"cut to {length} bytes"


def empty(path: Path, random: np.random.Generator) -> str:
    path.write_bytes(b"")
    return "emptied"


def delete(path: Path, random: np.random.Generator) -> str:
    path.unlink()
    return "deleted"


def append(path: Path, random: np.random.Generator) -> str:
    garbage = [b"\0" * 7, b"garbage", b"\xff\n\xfe\n", b"{}\n", b"\n", random.bytes(30)][random.integers(6)]
    path.write_bytes(path.read_bytes() + garbage)
    return f"{garbage[:8]!r} appended"


def drop_a_line(path: Path, random: np.random.Generator) -> str:
    lines = path.read_bytes().splitlines(keepends=True)
    gone = int(random.integers(max(len(lines), 1)))
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    return f"line {gone + 1} dropped"


def put_a_folder(path: Path, random: np.random.Generator) -> str:
    path.unlink()
    path.mkdir()
    (path / "inside.txt").write_text("something\n")
    return "replaced by a folder"


DEEDS = (flip, flip, flip, overwrite, truncate, truncate, empty, delete, append, drop_a_line, put_a_folder)


def swap(path: Path, other: Path) -> str:
    kept = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    return f"swapped with {other.name}"


def harm(home: Path, random: np.random.Generator) -> tuple[Path, str]:
    """Damage one file below `home`; return the file and the damage. Each kind of file is equally likely."""
    files = [path for path in sorted(home.rglob("*")) if path.is_file() and path.name != "notes.txt"]
    kinds = sorted({_kind(path, home) for path in files})
    kind = kinds[random.integers(len(kinds))]
    alike = [path for path in files if _kind(path, home) == kind]
    path = alike[random.integers(len(alike))]
    if random.random() < 0.1:
        return path, swap(path, [file for file in files if file != path][random.integers(len(files) - 1)])
    return path, DEEDS[random.integers(len(DEEDS))](path, random)


def _kind(path: Path, home: Path) -> str:
    """Return the name of the file without its numbers."""
    name = "".join("0" if letter.isdigit() else letter for letter in str(path.relative_to(home)))
    return "tensorboard" if "tensorboard" in name else name


# ---------------------------------------------------------------------------------------------------- readers
def readers(random: np.random.Generator, steps: list[int]) -> tuple[str, Callable[[Path], Seen]]:
    """Return a random reader, and the name of its result in the truth."""
    checkpoint = ["last", "last", "best", *steps][random.integers(3 + len(steps))]
    metric = victims.METRICS[random.integers(2)]
    return [
        ("resumed", victims.resume),
        ("resumed", victims.resume),
        (f"act {checkpoint}", lambda folder: victims.act(folder, checkpoint)),
        (f"evaluate {checkpoint}", lambda folder: victims.evaluate(folder, checkpoint)),
        (f"plot {metric}", lambda folder: victims.plot(folder, metric)),
    ][random.integers(5)]


# ---------------------------------------------------------------------------------------------------- the verdict
def judge(
    folder: Path, reading: str, read: Callable[[Path], Seen], truth: dict[str, Any], names: set[str], original: Any
) -> Verdict:
    """Read the attacked run, and return the verdict.

    Args:
        folder: The run's folder.
        reading: The name of the reader's result in `truth`.
        read: The reader.
        truth: The results of an undamaged run.
        names: A notice has to name one of these.
        original: The content of config.yaml before the attack.
    """
    home = folder.parent
    before, lines = contents(home), readable(folder)
    try:
        seen, notices = read(folder)
    except DuettoError as error:
        after = contents(home)
        lost = sorted(name for name in before if _is_lost(name, before, after)) + gone(lines, folder, None)
        return Verdict("lost", f"refused, but {lost[:5]} changed: {error}") if lost else Verdict("refused", str(error))
    if reading == "resumed":
        if lost := gone(lines, folder, first_step(seen, truth)):
            return Verdict("lost", f"{len(lost)} lines that could be read, such as {lost[0]}")
    elif lost := sorted(name for name in before if _is_lost(name, before, contents(home))):
        return Verdict("lost", f"{lost[:5]} changed by reading")
    different = differences(truth.get(reading), seen)
    if not different:
        return Verdict("the same", " ".join(notices))
    naming = [notice for notice in notices if any(name in notice for name in names)]
    if naming:
        return Verdict("said", naming[0])
    if only_free(folder, original):
        return Verdict("free", different[0][:200])
    return Verdict("silent", f"{len(different)} differences: {different[0][:300]}")


def _is_lost(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    if name.endswith("/.lock") or Path(name).name in LOGS:  # logs are compared by lines
        return False
    return before[name] != after.get(name)


def readable(folder: Path) -> dict[str, list[tuple[float, str]]]:
    """Return the readable lines of each log, with their steps."""
    found: dict[str, list[tuple[float, str]]] = {}
    for name, scan in LOGS.items():
        if (folder / name).is_file():
            found[name] = [entry for row in scan(folder / name).rows if (entry := _entry(row)) is not None]
    return found


def _entry(row: dict[str, Any]) -> tuple[float, str] | None:
    try:
        return float(row["step"]), json.dumps(row, sort_keys=True, default=str)
    except (KeyError, TypeError, ValueError):
        return None


def gone(before: dict[str, list[tuple[float, str]]], folder: Path, since: float | None) -> list[str]:
    """Return lines until step `since` that were readable and are now in no log. Later lines are written again."""
    kept = {text for name in ("", *(path.name for path in folder.glob("before*"))) for text in _texts(folder / name)}
    entries = [entry for lines in before.values() for entry in lines]
    return [text for step, text in entries if text not in kept and (since is None or step <= since)]


def _texts(folder: Path) -> set[str]:
    return {text for lines in readable(folder).values() for _, text in lines}


def first_step(seen: Any, truth: dict[str, Any]) -> float:
    """Return the oldest checkpoint: a resumed run does not write earlier lines again."""
    return min(truth["steps"])


def only_free(folder: Path, original: Any) -> bool:
    """Return whether config.yaml differs from the original only in free keys."""
    now = yaml.safe_load((folder / "config.yaml").read_bytes())
    changed = [key for key in flat(now).keys() | flat(original).keys() if flat(now).get(key) != flat(original).get(key)]
    return bool(changed) and all(key in FREE or key.split("/")[0] in FREE for key in changed)


def flat(values: Any) -> dict[str, Any]:
    """Flatten two levels of keys to one."""
    return {
        f"{part}/{key}" if isinstance(inner, dict) else part: value
        for part, inner in values.items()
        for key, value in (inner.items() if isinstance(inner, dict) else [(part, inner)])
    }


def case(place: Path, victim: Path, random: np.random.Generator, tell: Tell) -> Verdict:
    """Damage a file, and read the run. `tell` gets the place, the damage and the reader."""
    truth = victims.truth(victim)
    folder = victims.copy(victim, place / "home")
    original = yaml.safe_load((folder / "config.yaml").read_bytes())
    path, deed = harm(place / "home", random)
    reading, read = readers(random, truth["steps"])
    tell(str(path.relative_to(place / "home")), deed, reading)
    os.chdir(place / "home")
    names = {path.name, *(part for part in deed.split() if "." in part)}
    if _SNAPSHOT.fullmatch(path.parent.name):  # the notice may name the checkpoint instead
        names.add(path.parent.name)
    verdict = judge(folder, reading, read, truth, names, original)
    shutil.rmtree(place / "home", ignore_errors=True)
    return verdict


# ---------------------------------------------------------------------------------------------------- config.yaml
WORDS = ["auto", "none", "relu", "gaussian", "ou", "linear", "sampled", "collected", "torch", "jax", "sync", "x"]


def other_value(value: Any, random: np.random.Generator) -> Any:
    """Return another value of the same type, or sometimes of another type."""
    if random.random() < 0.1:
        return [None, "x", -1, [], {}, True, 1e400, "1e-3"][random.integers(8)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value, 0, value + 10][random.integers(5)]
    if isinstance(value, float):
        return [value / 2, value * 1.01, 0.0, 1.0, 0.18][random.integers(5)]
    if isinstance(value, str):
        return WORDS[random.integers(len(WORDS))]
    if isinstance(value, list):
        return [value[:-1], [*value, 8], [4], []][random.integers(4)]
    return {"g": 9.0} if isinstance(value, dict) else 1


def change_key(values: dict[str, Any], random: np.random.Generator) -> tuple[str, str]:
    """Change one key in place; return the key and the change."""
    keys = sorted(flat(values))
    key = keys[random.integers(len(keys))]
    part, _, name = key.partition("/")
    holder, name = (values[part], name) if name else (values, part)
    how = random.random()
    before = holder[name]
    if how < 0.05:
        del holder[name]
        return key, f"{before!r} taken out"
    if how < 0.1:
        holder[f"{name}x"] = holder.pop(name)
        return key, f"renamed to {name}x"
    holder[name] = other_value(before, random)
    return key, f"{before!r} became {holder[name]!r}"


def config_case(place: Path, victim: Path, random: np.random.Generator, tell: Tell) -> Verdict:
    """Change a key, and read the run; a resume may have --accept-changes."""
    truth = victims.truth(victim)
    folder = victims.copy(victim, place / "home")
    path = folder / "config.yaml"
    original = yaml.safe_load(path.read_bytes())
    values = yaml.safe_load(path.read_bytes())
    key, deed = change_key(values, random)
    path.write_text(yaml.safe_dump(values, sort_keys=False), "utf-8")
    reading, read = readers(random, truth["steps"])
    if accepted := reading == "resumed" and random.random() < 0.3:
        read = partial(victims.resume, accept_changes=True)
    tell(f"run/config.yaml: {key}", deed, f"{reading}, accepted" if accepted else reading)
    os.chdir(place / "home")
    verdict = judge(folder, reading, read, truth, {key.split("/")[-1]}, original)
    shutil.rmtree(place / "home", ignore_errors=True)
    return verdict
