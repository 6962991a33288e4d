"""Where things lie on the user's machine is not for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from duetto.tools.hub.file_rules import without_places


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
def test_only_the_last_name_of_a_path_is_kept(text: str, bare: str):
    assert without_places(text) == bare
    assert without_places(bare) == bare


def test_in_nested_values(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/alice"))
    values: Any = {"a": [{"b": "/x/y"}, 3, None, 0.5], "flags": "-I/home/alice"}
    assert without_places(values) == {"a": [{"b": "y"}, 3, None, 0.5], "flags": "-I~"}
