"""What is said can be done: a command that a sentence names is one that a shell takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from duetto.errors import few, to_resume
from duetto.storage.differences import differences, listed


@pytest.mark.parametrize("folder", ["runs/td3-Pendulum-v1-s0", "my runs/a'b", "läufe/$HOME"])
def test_going_on_in_any_folder(folder: str):
    assert shlex.split(to_resume(Path(folder))) == ["duetto", "resume", folder]


@pytest.mark.parametrize(
    ("names", "said"), [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcdef", "a, b, c and 3 more")]
)
def test_of_many_names_a_few(names: str, said: str):
    assert few(list(names), most=3) == said


def test_of_many_differences_the_first():
    assert listed([1, "b", None]) == "1; b; None"
    assert listed(range(7)) == "0; 1; 2; 3; 4; and 2 more"
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3}) == "b was 2 and is 3"
    assert differences({}, dict.fromkeys("abcdef", 0)).endswith("; e was None and is 0; and 1 more")
