"""Absolute paths are shortened because they can contain the user's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from duetto.tools.hub.file_rules import with_short_paths


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("/home/alice/robots/ant.xml", "ant.xml"),
        ("/home/alice/my robots/ant.xml", "ant.xml"),
        ("~/robots/ant.xml", "ant.xml"),
        ("~alice/robots/ant.xml", "ant.xml"),
        (r"C:\Users\alice\ant.xml", "ant.xml"),
        ("C:/Users/alice/ant.xml", "ant.xml"),
        ("see /home/alice/ant.xml, and file:/home/alice/x", "see ant.xml, and file:x"),
        ("'/home/alice/ant.xml:Ant'", "'ant.xml:Ant'"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("package:Id-v0", "package:Id-v0"),
        ("robots/ant.xml", "robots/ant.xml"),
        ("https://example.org/robots/ant.xml", "https://example.org/robots/ant.xml"),
        ("1 / 2", "1 / 2"),
        ("go to the red ball", "go to the red ball"),
        ("", ""),
    ],
)
def test_absolute_paths_are_shortened_to_last_name(text: str, bare: str):
    assert with_short_paths(text) == bare
    assert with_short_paths(bare) == bare


def test_paths_in_nested_values_are_shortened(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    values: Any = {"a": [{"b": "/x/y"}, 3, None, 0.5], "flags": "-I/home/alice"}
    assert with_short_paths(values) == {"a": [{"b": "y"}, 3, None, 0.5], "flags": "-I~"}
