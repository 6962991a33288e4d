"""Silence for what C libraries print."""

from __future__ import annotations

import os

import pytest

from duetto.environments import silence


@pytest.mark.parametrize("interrupted", [("flush", 2), ("dup2", 3), ("dup2", 4)])
def test_an_interrupt_while_output_is_restored_does_not_lose_later_messages(
    interrupted: tuple[str, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """A signal's KeyboardInterrupt at the end of each call that restores."""
    name, last = interrupted
    module, attribute = (silence, "_flush") if name == "flush" else (silence.os, "dup2")
    original, calls = getattr(module, attribute), []

    def call(*arguments: int) -> None:
        original(*arguments)
        calls.append(arguments)
        if len(calls) == last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, attribute, call)
        with pytest.raises(KeyboardInterrupt), silence.output():
            os.write(2, b"noise")
    os.write(1, b"out")
    os.write(2, b"interrupted.")
    assert capfd.readouterr() == ("out", "interrupted.")
