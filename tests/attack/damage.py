"""Damage: one file of a run, or of its demonstrations, is not what it was; then somebody reads the run.

What may happen, and nothing else:

- it is refused in a sentence, and every file is as it was;
- it works, and what comes out is that of the undamaged run, bit for bit;
- it works and a notice names the damaged file or its checkpoint, and no line of a log that could be read is gone;
- what was changed is free: `steps` in config.yaml, for example, or the command that it records.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
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

LOGS = {"metrics.jsonl": JsonLines.scan, "evaluations.csv": Csv.scan}
_SNAPSHOT = re.compile(r"(step-)?\d{12}")
# Of config.yaml: what only looks on or tells. By hand, not Duetto's own list.
FREE = {
    *("run/steps", "run/evaluate_every", "run/evaluation_episodes", "run/checkpoint_every", "run/log_every"),
    *("run/threads", "run/vectorization", "preset", "command", "versions"),
}


# ---------------------------------------------------------------------------------------------------- what is done
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
    """Damage one file below `home`; returns it and what was done. Each kind of file is as likely as another."""
    files = [path for path in sorted(home.rglob("*")) if path.is_file() and path.name != "notes.txt"]
    kinds = sorted({_kind(path, home) for path in files})
    kind = kinds[random.integers(len(kinds))]
    alike = [path for path in files if _kind(path, home) == kind]
    path = alike[random.integers(len(alike))]
    if random.random() < 0.1:
        return path, swap(path, [file for file in files if file != path][random.integers(len(files) - 1)])
    return path, DEEDS[random.integers(len(DEEDS))](path, random)


def _kind(path: Path, home: Path) -> str:
    """What it is, without the numbers in its name."""
    name = "".join("0" if letter.isdigit() else letter for letter in str(path.relative_to(home)))
    return "tensorboard" if "tensorboard" in name else name


# ---------------------------------------------------------------------------------------------------- who reads it
def readers(random: np.random.Generator, steps: list[int]) -> tuple[str, Callable[[Path], Seen]]:
    """One of those who read runs, by what the truth calls what it sees."""
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
    """Read the attacked run, and say how that ended.

    Args:
        folder: The run's.
        reading: What `truth` calls what is to come out.
        read: The reader.
        truth: What comes out where nothing was attacked.
        names: A notice has to name one of these.
        original: What config.yaml said before.
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
    if name.endswith("/.lock") or Path(name).name in LOGS:  # half lines go, so these are compared by their lines
        return False
    return before[name] != after.get(name)


def readable(folder: Path) -> dict[str, list[tuple[float, str]]]:
    """The lines of each log that can be read: of which step, and what they say."""
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
    """What could be read and is nowhere now, in the logs or beside them. From step `since` on it is made again."""
    kept = {text for name in ("", *(path.name for path in folder.glob("before*"))) for text in _texts(folder / name)}
    entries = [entry for lines in before.values() for entry in lines]
    return [text for step, text in entries if text not in kept and (since is None or step <= since)]


def _texts(folder: Path) -> set[str]:
    return {text for lines in readable(folder).values() for _, text in lines}


def first_step(seen: Any, truth: dict[str, Any]) -> float:
    """The oldest checkpoint that a resumed run can have started at: up to there nothing is made again."""
    return min(truth["steps"])


def only_free(folder: Path, original: Any) -> bool:
    """Whether config.yaml differs from what it was, and only in what is free."""
    now = yaml.safe_load((folder / "config.yaml").read_bytes())
    changed = [key for key in flat(now).keys() | flat(original).keys() if flat(now).get(key) != flat(original).get(key)]
    return bool(changed) and all(key in FREE or key.split("/")[0] in FREE for key in changed)


def flat(values: Any) -> dict[str, Any]:
    """Two levels of keys as one."""
    return {
        f"{part}/{key}" if isinstance(inner, dict) else part: value
        for part, inner in values.items()
        for key, value in (inner.items() if isinstance(inner, dict) else [(part, inner)])
    }


def case(place: Path, victim: Path, random: np.random.Generator, tell: Callable[[str, str, str], None]) -> Verdict:
    """Damage something, and let somebody read it. `tell` gets where, what was done, and who reads."""
    truth = victims.truth(victim)
    folder = victims.copy(victim, place / "home")
    original = yaml.safe_load((folder / "config.yaml").read_bytes())
    path, deed = harm(place / "home", random)
    reading, read = readers(random, truth["steps"])
    tell(str(path.relative_to(place / "home")), deed, reading)
    os.chdir(place / "home")
    names = {path.name, *(part for part in deed.split() if "." in part)}
    if _SNAPSHOT.fullmatch(path.parent.name):  # which of its files and its manifest is wrong, nobody can tell
        names.add(path.parent.name)
    verdict = judge(folder, reading, read, truth, names, original)
    shutil.rmtree(place / "home", ignore_errors=True)
    return verdict
