"""Write `contract.md`: `python tests/contract/generate.py`. Existing rows keep their state.

A row whose name is gone from the code stays; set its state to `renamed to NAME` or `goes because REASON`.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tempfile
from collections import defaultdict
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from contract_cases import FEATURES, PLAIN, Runs

import duetto
from duetto.tools.cli import main

FILE = Path(__file__).with_name("contract.md")
DOCS = Path(__file__).parents[2] / "docs" / "reference"
HEAD = """# The contract

Every name that users write or read. `generate.py` makes the rows from the code and keeps the column "state":
`keep`, `renamed to NAME` or `goes because REASON`. A state changes only in the commit that changes the code.
"""
Rows = dict[tuple[str, str], str]  # section and name: details


def output_of(*arguments: str) -> str:
    """Return the output of a command on a wide terminal."""
    with patch.dict(os.environ, COLUMNS="1000"), redirect_stdout(StringIO()) as out, suppress(SystemExit):
        main(list(arguments))
    return out.getvalue()


def commands_and_options() -> Rows:
    algorithms = list(json.loads(output_of("list", "algorithms", "--json"))["algorithms"])
    commands = re.findall(r"^  (?!duetto)(\w+) +\S", output_of("--help"), re.MULTILINE)
    commands += dict.fromkeys(re.findall(r"duetto (demos \w+) ", output_of("demos", "--help")))
    where: dict[str, set[str]] = defaultdict(set)
    choices: dict[str, dict[str, None]] = defaultdict(dict)
    takers: dict[str, set[str]] = defaultdict(set)
    for command in commands:
        variants = [[], *([name] for name in algorithms if command in ("train", "sweep", "tune"))]
        for algorithm in variants:
            everything = ["--help-all"] if algorithm else ["--help"]
            text = output_of(*command.split(), *algorithm, *everything)
            begins = (
                "" if len(variants) > 1 and not algorithm else "^.{0,3}"
            )  # without an algorithm the help is plain text
            for option, values in re.findall(rf"{begins}(?<!\S)(--[a-z][\w-]*)(?:.*?(\{{\S+\}}))?", text, re.MULTILINE):
                where[option].add(command)
                choices[option] |= dict.fromkeys(value for value in re.findall(r"[\w-]+", values) if value != "None")
                takers[option].update(algorithm)
    rows: Rows = {("Commands", f"duetto {command}"): "" for command in commands}
    for option in sorted(where.keys() - {"--help", "--help-all"}):
        of = ["of:", *sorted(takers[option])] if 0 < len(takers[option]) < len(algorithms) else []
        name = f"{option} ({', '.join(sorted(where[option]))})"
        rows["Options", name] = " ".join([*choices[option], *of])
    return rows


def python_names() -> Rows:
    """Return the names of `duetto` and its public modules, and those that the reference documents."""
    places = [name for name in dir(duetto) if name != "__version__"]
    for room in ("callbacks", "trackers", "testing"):
        places += [f"{room}.{name}" for name in import_module(f"duetto.{room}").__all__]
    rows = {f"duetto.{name}": details(resolve(f"duetto.{name}")) for name in places}
    pages = "".join((DOCS / page).read_text("utf-8") for page in ("python.md", "functional.md"))
    documented = r":: +(duetto\.[\w.]+).*(?:\n +(:members:.*))?(?:\n +:exclude-members:(.*))?"
    for name, members, left_out in re.findall(documented, pages):
        value = resolve(name)
        rows[name] = details(value)
        if isinstance(value, type) and members:
            named = members.removeprefix(":members:").strip()
            hidden = [member.strip() for member in left_out.split(",")]
            for member in named.split(", ") if named else vars(value):
                if not member.startswith("_") and member not in hidden:
                    rows[f"{name}.{member}"] = details(getattr(value, member))
    sections = {"callbacks": "Callbacks", "trackers": "Trackers", "errors": "Errors"}
    return {(sections.get(name.split(".")[1], "Python"), name): rows[name] for name in sorted(rows)}


def resolve(name: str) -> Any:
    """Return the object of a dotted name."""
    value: Any = duetto
    for part in name.split(".")[1:]:
        value = value.__dict__.get(part) or getattr(value, part, None) or import_module(f"{value.__name__}.{part}")
    return value


def details(value: Any) -> str:
    """Return the arguments of a function or class, the exit code of an error, or the names in a module."""
    if isinstance(value, type) and issubclass(value, duetto.DuettoError):
        return f"exit code {value.exit_code}"
    names: list[str] = []
    if inspect.ismodule(value):
        names = sorted(name for name, item in vars(value).items() if getattr(item, "__module__", "") == value.__name__)
    elif not hasattr(value, "with_options"):  # the options of algorithms have rows of their own
        with suppress(TypeError, ValueError):
            names = list(inspect.signature(value).parameters)
    return ", ".join(name for name in names if name not in ("self", "args", "kwargs") and not name.startswith("_"))


def listed() -> Rows:
    everything = json.loads(output_of("list", "--json"))
    rows: Rows = {("Presets", f"{kind} {name}"): "" for kind, names in everything["presets"].items() for name in names}
    rows |= {("Environments", name): family["extra"] for name, family in everything["environments"].items()}
    return rows | {("Extras", name): "" for name in everything["extras"]}


def metrics(trained: Runs) -> Rows:
    """Return the names in the logs of short runs, with the algorithms that log them."""
    loggers: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for name, case in (PLAIN | FEATURES).items():
        run = trained(name)
        for section, lines in (("Metrics", run.metrics()), ("Evaluations", run.evaluations())):
            for key in sorted({key for line in lines for key in line}):
                loggers[section, key][case.algorithm] = None
    return {key: "" if len(of) == len(PLAIN) else " ".join(of) for key, of in sorted(loggers.items())}


def rows(trained: Runs) -> Rows:
    return commands_and_options() | python_names() | listed() | metrics(trained)


def read(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the details and the state of each row of the file."""
    rows, section = {}, ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("| `"):
            name, details, state = (cell.strip() for cell in line.strip("|").split(" | "))
            rows[section, name.strip("`")] = details.strip("`"), state
    return rows


def render(new: Rows, old: dict[tuple[str, str], tuple[str, str]]) -> str:
    gone = {key: details for key, (details, _) in old.items() if key not in new}
    lines = [HEAD]
    for section in dict.fromkeys(section for section, _ in new | gone):
        lines += [f"## {section}\n", "| name | details | state |", "| --- | --- | --- |"]
        for key, details in (new | gone).items():
            if key[0] == section:
                lines.append(f"| `{key[1]}` | {f'`{details}`' if details else ''} | {old.get(key, ('', 'keep'))[1]} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        old = read(FILE.read_text("utf-8")) if FILE.exists() else {}
        FILE.write_text(render(rows(Runs(Path(folder))), old), "utf-8")
