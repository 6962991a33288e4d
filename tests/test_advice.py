"""What is said can be done: a command that a sentence names is one that a shell takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from duetto.errors import to_resume


@pytest.mark.parametrize("folder", ["runs/td3-Pendulum-v1-s0", "my runs/a'b", "läufe/$HOME"])
def test_going_on_in_any_folder(folder: str):
    assert shlex.split(to_resume(Path(folder))) == ["duetto", "resume", folder]
