"""Help: of everything, with every hyper-parameter, and at once."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import pytest
from commands import Command

from duetto import __version__
from duetto.algorithms import ALGORITHMS
from duetto.storage.config import RunOptions
from duetto.tools.cli import COMMANDS

FRAMEWORKS = {"torch", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "pybullet", "tensorboardX"}


def documented(owner: type) -> dict[str, str]:
    """Every field of a dataclass with the text under it, bases included."""
    texts: dict[str, str] = {}
    for kind in reversed(owner.__mro__):
        if not dataclasses.is_dataclass(kind):
            continue
        body = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body[0].body
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                texts[field.target.id] = str(text.value.value)
    return {field.name: texts.get(field.name, "") for field in dataclasses.fields(owner)}


def flat(text: str) -> str:
    """Help without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_the_overview_names_every_command(duetto: Command, arguments: list[str]):
    out = duetto(*arguments).printed()
    assert out.startswith("usage: duetto COMMAND ...")
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("train", "tune", "sweep", "demos")])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_of_each_command(duetto: Command, command: str, option: str):
    out = duetto(command, option).printed()
    assert out.startswith(f"usage: duetto {command} ")
    of_several = dict.fromkeys(("plot", "report", "table"), "Folders of runs: runs/td3-*")
    said = {"list": "List algorithms", "pull": "Fetch a run from"} | of_several
    said |= {"check": "An id, module:ID, or a class or function: FILE.py:NAME"}
    assert said.get(command, "The run's folder.") in out


def test_help_of_train_without_an_algorithm_names_them(duetto: Command):
    out = duetto("train", "--help").printed()
    assert out.startswith("usage: duetto train ALGORITHM ENVIRONMENT [options]")
    assert all(name in out for name in ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_hyper_parameter_is_there_with_its_text_and_default(duetto: Command, name: str):
    algorithm = ALGORITHMS[name]
    out = duetto("train", name, "--help-all").printed()
    text = flat(out)
    for owner, default in ((algorithm, algorithm()), (RunOptions, RunOptions())):
        for field, about in documented(owner).items():
            if field in algorithm().custom_networks() or field.endswith("_network"):
                assert f"--{field.replace('_', '-')}" not in text  # a class cannot be typed
                continue
            assert about, f"{field} has no text"
            assert f"--{field.replace('_', '-')}" in text
            shown = _shown(getattr(default, field))
            assert f"{about} (default: {shown})" in text if shown else about in text, field
    for option in ("--preset", "--runs-dir", "--name"):
        assert option in text


def sections(text: str) -> dict[str, list[str]]:
    """The options below each title of a help page."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.fullmatch(r"(\w[\w ]*):", line):
            options = found.setdefault(title[1], [])
        elif option := re.match(r"  (--\w[\w-]*)", line):
            options.append(option[1])
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_fits_a_reader(duetto: Command, name: str):
    algorithm = ALGORITHMS[name]
    known = {f"--{field.replace('_', '-')}" for field in algorithm.options()}
    short, long = (sections(duetto("train", name, option).out) for option in ("--help", "--help-all"))
    assert sum(len(known & {*options}) for options in short.values()) <= 40
    titles = ["run", name, "exploration", "networks", "optimizer", "replay", "recurrence", "demonstrations"]
    titles += ["evaluation and logging", "cluster"]
    assert [title for title in long if title in titles] == [title for title in titles if title in long]
    assert set(long) - set(titles) == {"positional arguments", "options"}
    assert short["run"][:5] == ["--steps", "--seed", "--num-envs", "--device", "--backend"]
    rare = {f"--{field.replace('_', '-')}" for field in algorithm.rare_options()}
    assert rare & known & {option for options in long.values() for option in options}
    assert not rare & {option for options in short.values() for option in options}


PAGES = [*(name for name in COMMANDS if name not in ("demos", "tune", "sweep")), "demos import", "demos record"]
PAGES += [f"{command} {name} --help-all" for command in ("train", "tune", "sweep") for name in ("td3", "ppo", "r2d3")]


@pytest.mark.parametrize("page", PAGES)
def test_help_is_readable_at_80_columns(duetto: Command, monkeypatch: pytest.MonkeyPatch, page: str):
    words = [*page.split(), "--help"]
    texts = []
    for columns in (80, 400):
        monkeypatch.setenv("COLUMNS", str(columns))
        texts.append(duetto(*words).out)
    assert max(map(len, texts[0].splitlines())) <= 80
    assert sorted(flat(texts[0]).split()) == sorted(flat(texts[1]).split())  # no word or number is broken
    for unreadable in ("None", "STR", "INT", "FLOAT", "(default: False)", "(default: )"):
        assert unreadable not in texts[0]


def _shown(value: Any) -> str:
    if value in ("", (), False, None):
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_help_shows_the_defaults_of_the_preset(duetto: Command):
    plain, own = (flat(duetto("train", "td3", *environment, "--help").out) for environment in ([], ["Pendulum-v1"]))
    author = flat(duetto("train", "td3", "Pendulum-v1", "--preset", "author", "--help").out)
    discount = "γ: the weight of a reward one step later. (default: {})"
    assert discount.format(0.99) in plain
    assert discount.format(0.98) in own
    assert discount.format(0.99) in author
    assert "those of the preset 'Pendulum-v1'" in own
    assert "those of the preset 'author'" in author


def test_the_version(duetto: Command):
    assert duetto("--version") == (0, f"duetto {__version__}\n", "")


# ---------------------------------------------------------------------------------------------------- speed
def seconds(*command: str) -> float:
    """The best of three."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return best


ENTRY = "import sys; from duetto.tools.cli import main; sys.argv[0] = 'duetto'; main()"


def test_the_overview_is_there_at_once():
    assert seconds(sys.executable, "-c", ENTRY, "--help") < 0.8


def imported_by(code: str) -> set[str]:
    probe = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint('MODULES', *sys.modules)"
    out = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout
    return {name.partition(".")[0] for name in out.rpartition("MODULES")[2].split()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_no_framework_is_imported_for_it(arguments: list[str]):
    modules = imported_by(f"from duetto.tools.cli import main; main({arguments})")
    assert "duetto" in modules
    assert not FRAMEWORKS & modules
    assert not {"numpy", "argparse", "rich", "yaml"} & modules  # nor anything else that takes its time


@pytest.mark.parametrize("arguments", [["train", "td3", "--help"], ["train", "--help"]])
def test_nor_for_the_hyper_parameters(arguments: list[str]):
    assert not FRAMEWORKS & imported_by(f"from duetto.tools.cli import main; main({arguments})")


def test_a_reader_that_has_seen_enough_is_no_failure():
    command = f"'{sys.executable}' -c \"{ENTRY}\" train td3 --help"
    result = subprocess.run(["bash", "-c", f"{command} | head -1"], capture_output=True, text=True, check=False)
    assert result.stdout.startswith("usage: duetto train td3")
    assert result.stderr == ""
