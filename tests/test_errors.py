"""Parts of error messages: commands to resume, shortened lists, and differences between configurations."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from duetto.errors import EnvironmentFailedError, few, to_resume
from duetto.storage.reproducibility import dict_diff, flat, sentence


@pytest.mark.parametrize("folder", ["runs/td3-Pendulum-v1-s0", "my runs/a'b", "läufe/$HOME"])
def test_resume_command_quotes_the_folder(folder: str):
    assert shlex.split(to_resume(Path(folder))) == ["duetto", "resume", folder]


def test_environment_errors_cannot_control_the_terminal():
    assert str(EnvironmentFailedError("step failed.", "\x1b[2J")) == "step failed.\n\\x1b[2J"


def test_long_list_is_shortened():
    said = {"": "", "a": "a", "abc": "a, b, c", "abcdef": "a, b, c and 3 more"}
    assert {names: few(list(names), most=3) for names in said} == said
    assert few([1, "b", None], 3, "; ") == "1; b; None"
    assert few(range(7), 5, "; ") == "0; 1; 2; 3; 4 and 2 more"


def test_differences_of_two_configurations_are_named():
    before, now = flat({"a": 1, "b": {"c": "x", "d": (1, 2)}}), flat({"a": 2, "b": {"c": "y", "d": [1, 2]}})
    assert dict_diff(before, now) == {"a": ("1", "2"), "b.c": ('"x"', '"y"')}
    assert sentence(dict_diff(before, now)) == 'a was 1, is now 2; b.c was "x", is now "y"'
    assert sentence(dict_diff({}, flat(dict.fromkeys("abcdef", 0)))).endswith("; e was null, is now 0 and 1 more")
