"""The help of every command, with every hyperparameter; it imports no framework."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from commands import Command

from duetto import __version__
from duetto.algorithms import ALGORITHMS
from duetto.storage.config import RunOptions
from duetto.tools.cli import COMMANDS
from duetto.tools.cli.learning import described
from duetto.tools.cli.parser import taken_apart

FRAMEWORKS = {"torch", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "pybullet", "tensorboardX"}


def join_lines(text: str) -> str:
    """Return the help text without line breaks."""
    return " ".join(text.split())


def test_help_overview_lists_commands_and_algorithms(duetto: Command):
    overview = duetto("--help").printed()
    assert overview.startswith("usage: duetto COMMAND ...")
    assert all(f"  {name} " in overview for name in COMMANDS)
    assert duetto().out == duetto("-h").out == overview
    train = duetto("train", "--help").printed()
    assert train.startswith("usage: duetto train ALGORITHM ENVIRONMENT [options]")
    assert all(name in train for name in ALGORITHMS)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("train", "tune", "sweep", "demos")])
def test_help_of_each_command(duetto: Command, command: str):
    out = duetto(command, "--help").printed()
    assert out.startswith(f"usage: duetto {command} ")
    assert duetto(command, "-h").out == out
    of_several = dict.fromkeys(("plot", "report", "table"), "Folders of runs: runs/td3-*")
    first = {"list": "List algorithms", "pull": "Fetch a run from"} | of_several
    first |= {"check": "ID, MODULE:ID, or FILE.py:NAME of a class or function"}
    assert first.get(command, "The run's folder.") in out


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_shows_every_hyperparameter_with_text_and_default(duetto: Command, name: str):
    algorithm = ALGORITHMS[name]
    out = duetto("train", name, "--help-all").printed()
    text = join_lines(out)
    for owner, default in ((algorithm, algorithm()), (RunOptions, RunOptions())):
        for field, annotation in described(owner).items():
            about = taken_apart(annotation)[1].help  # the docstring below the field
            assert about, f"{field} has no text"
            assert f"--{field.replace('_', '-')}" in text
            shown = _displayed_default(getattr(default, field))
            assert f"{about} (default: {shown})" in text if shown else about in text, field
    assert not [field for field in algorithm().custom_networks() if f"--{field.replace('_', '-')}" in text]
    short = join_lines(duetto("train", name, "--help").out)
    assert not [field for field in algorithm.rare_options() if f"--{field.replace('_', '-')} " in short]


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
    assert sorted(join_lines(texts[0]).split()) == sorted(join_lines(texts[1]).split())  # no word or number is broken
    for unreadable in ("None", "STR", "INT", "FLOAT", "(default: False)", "(default: )"):
        assert unreadable not in texts[0]


def _displayed_default(value: Any) -> str:
    if value in ("", (), False, None):
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_help_shows_the_defaults_of_the_preset(duetto: Command):
    plain, own = (
        join_lines(duetto("train", "td3", *environment, "--help").out) for environment in ([], ["Pendulum-v1"])
    )
    author = join_lines(duetto("train", "td3", "Pendulum-v1", "--preset", "author", "--help").out)
    discount = "γ: the weight of a reward one step later. (default: {})"
    assert discount.format(0.99) in plain
    assert discount.format(0.98) in own
    assert discount.format(0.99) in author
    assert "those of the preset 'Pendulum-v1'" in own
    assert "those of the preset 'author'" in author


def test_version_option_prints_the_version(duetto: Command):
    assert duetto("--version") == (0, f"duetto {__version__}\n", "")


# ---------------------------------------------------------------------------------------------------- speed
def imported_by(code: str) -> set[str]:
    probe = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint('MODULES', *sys.modules)"
    out = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout
    return {name.partition(".")[0] for name in out.rpartition("MODULES")[2].split()}


@pytest.mark.parametrize("arguments", [["--help"], ["train", "td3", "--help"]])
def test_help_imports_no_framework(arguments: list[str]):
    """Importing a framework takes seconds. The overview imports no other slow module either."""
    modules = imported_by(f"from duetto.tools.cli import main; main({arguments})")
    assert "duetto" in modules
    assert not FRAMEWORKS & modules
    assert arguments != ["--help"] or not {"numpy", "argparse", "rich", "yaml"} & modules
