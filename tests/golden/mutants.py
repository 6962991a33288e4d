"""Apply the faults of mutants.toml one at a time to a copy of the checkout, and run the fence on each.

    python tests/golden/mutants.py                  all, from the start
    python tests/golden/mutants.py --continue       those without a result
    python tests/golden/mutants.py --only ID ...    these again
    python tests/golden/mutants.py --check          run nothing; list the mutants that no longer apply

mutants_result.md gets a row after each mutant. A mutant is caught if a test fails with it and passes without it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIST, RESULT = HERE / "mutants.toml", HERE / "mutants_result.md"
PYTEST = [sys.executable, "-m", "pytest", "-x", "-n", "2", "-p", "no:cacheprovider", "-rfE", "--tb=no"]
NO_TESTS = (4, 5)  # exit statuses of pytest: a path that does not exist, and nothing selected
ESCAPED, GONE, SLOW, UNCLEAR = "**ESCAPED**", "no longer applies", "time limit", "unclear: fails without it, too"
BROKEN = "pytest ended with status"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.\w+(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
HEAD = "| id | room | what | caught by | seconds |\n| --- | --- | --- | --- | ---: |\n"
ROW = re.compile(r"^\| ([\w-]+) \| .* \| (.*) \| +([\d.]+) \|$", re.MULTILINE)


class Place(NamedTuple):
    """The line that a mutant changes."""

    path: Path
    text: str  # of the whole file, changed


def place(source: Path, mutant: dict[str, Any]) -> Place | None:
    """Find the mutant's line in its file or, if that was renamed, in all of the source; None if it is not unique."""
    own = source / mutant["file"]
    found = _lines(own, mutant) if own.is_file() else []
    if not found:
        found = [one for path in sorted(source.rglob("*.py")) for one in _lines(path, mutant)]
    return found[0] if len(found) == 1 else None


def _lines(path: Path, mutant: dict[str, Any]) -> list[Place]:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if line.strip() == mutant["before"].strip()]
    if near := mutant.get("near"):  # the first one below it
        above = [i for i, line in enumerate(lines) if near in line]
        at = [i for i in at if above and i > above[0]][:1] if len(above) == 1 else []
    changed = {i: lines[i].replace(mutant["before"].strip(), mutant["after"]) for i in at}
    return [Place(path, "".join([*lines[:i], line, *lines[i + 1 :]])) for i, line in changed.items()]


def copied(folder: Path) -> Path:
    """Copy all files of the checkout that git does not ignore, with their changes."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


class Fence:
    """The fence in a copy of the checkout. `limit` is in seconds, for all of its stages together."""

    def __init__(self, copy: Path, arguments: list[str], limit: float) -> None:
        self._copy, self._arguments, self._limit = copy, arguments, limit
        self._changed = 0
        self.ran: bool = False  # whether any test was

    def write(self, path: Path, text: str) -> None:
        """Change a file, with a time that no compiled file has."""
        self._changed += 10
        path.write_text(text, "utf-8")
        os.utime(path, (at := time.time() + self._changed, at))

    def failure(self, first: list[str]) -> str:
        """Run `first`, then tests/golden, then the rest, until a test fails; return its id.

        SLOW if the time limit was reached, "" if no test failed.
        """
        end = time.monotonic() + self._limit
        first = [one for one in first if (self._copy / one.partition("::")[0]).exists()]
        golden = ["tests/golden"] if (self._copy / "tests/golden").exists() else []
        done = [argument for one in [*first, *golden] for argument in ("--deselect", one)]
        stages = [first] if first else []
        stages += [[*golden, *done[: 2 * len(first)]]] if golden else []
        for stage in [*stages, done]:
            if found := self.run(stage, end):
                return found
        return ""

    def run(self, stage: list[str], end: float) -> str:
        """Run pytest until a test fails; return as `failure` does."""
        environment = os.environ | {"PYTHONPATH": str(self._copy / "src")}
        process = subprocess.Popen(
            [*PYTEST, *self._arguments, *stage],
            cwd=self._copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=max(1.0, end - time.monotonic()))
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return SLOW
            raise
        self.ran |= process.returncode == 0
        if match := FAILED.search(said):
            return match[1]
        if process.returncode in (0, *NO_TESTS):
            return ""
        print(said[-3000:])
        return f"{BROKEN} {process.returncode}"


def caught_by(fence: Fence, copy: Path, mutant: dict[str, Any]) -> str:
    """Apply a mutant, run the fence, and take the mutant back; return a cell of the table."""
    where = place(copy / "src/duetto", mutant)
    if where is None:
        return GONE
    before = where.path.read_text("utf-8")
    fence.write(where.path, where.text)
    try:
        found = fence.failure(mutant.get("first", []))
    finally:
        fence.write(where.path, before)
    if found in ("", SLOW) or found.startswith(BROKEN):
        return found or ESCAPED
    return UNCLEAR if fence.run([found], time.monotonic() + 600) else f"`{found.replace('|', '¦')}`"


def write(rows: dict[str, tuple[str, float]], mutants: list[dict[str, Any]]) -> str:
    """Write the table of results by id; return the score in words."""
    counts = Counter("caught" if cell.startswith("`") else cell for cell, _ in rows.values())
    said = f"{counts.pop('caught', 0)} of {len(mutants)} mutants are caught"
    said += "".join(f"; {number} {kind.strip('*').lower()}" for kind, number in counts.items()) + "."
    table = [
        f"| {one['id']} | {one['room']} | {one['what']} | {cell} | {seconds:.0f} |\n"
        for one in mutants
        if one["id"] in rows
        for cell, seconds in [rows[one["id"]]]
    ]
    RESULT.write_text(f"# Does the fence hold?\n\n{said}\n\n{HEAD}{''.join(table)}", "utf-8")
    return said


def main() -> None:
    """Parse the arguments, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--continue", dest="go_on", action="store_true", help="skip mutants that have a result")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="run these, and keep the others' results")
    parser.add_argument("--check", action="store_true", help="list the mutants that no longer apply, and run nothing")
    parser.add_argument("--fence-args", default="-m fence", help="pytest's arguments that select the fence")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for each mutant")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the fence without a mutant first")
    call = parser.parse_args()
    mutants = tomllib.loads(LIST.read_text("utf-8"))["mutant"]
    if unknown := set(call.only) - {one["id"] for one in mutants}:
        parser.error(f"There is no mutant {', '.join(sorted(unknown))}.")
    gone = [one for one in mutants if place(ROOT / "src/duetto", one) is None]
    for one in gone:
        print(f"{one['id']} no longer applies: its line is not there once, {one['file']}: {one['before']}")
    if call.check:
        sys.exit(bool(gone))
    rows: dict[str, tuple[str, float]] = {}
    if (call.go_on or call.only) and RESULT.exists():
        rows = {match[1]: (match[2], float(match[3])) for match in ROW.finditer(RESULT.read_text("utf-8"))}
    chosen = [one for one in mutants if (one["id"] in call.only if call.only else one["id"] not in rows)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="duetto-mutants-") as folder:
        copy = copied(Path(folder))
        fence = Fence(copy, shlex.split(call.fence_args), call.limit)
        if not call.no_baseline and (failed := fence.failure([])):
            sys.exit(f"Without any mutant the fence fails: {failed}. Correct that first.")
        if not call.no_baseline and not fence.ran:
            sys.exit(f"{call.fence_args} selects no test.")
        for one in chosen:
            began = time.monotonic()
            cell = caught_by(fence, copy, one)
            rows[one["id"]] = cell, time.monotonic() - began
            print(f"{one['id']:30} {rows[one['id']][1]:5.0f} s  {cell}", flush=True)
            write(rows, mutants)
    print(write(rows, mutants))


if __name__ == "__main__":
    main()
