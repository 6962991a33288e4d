"""Signals that come while several runs are worked on end the call in order, and are not forgotten behind it."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import duetto
from duetto.errors import DuettoError
from duetto.training.signals import interruptible, passed_on


@pytest.mark.parametrize(("call", "where"), [(duetto.sweep, "sweep"), (duetto.tune, "tune")])
def test_a_sweep_and_a_study_pass_a_signal_on(
    call: Any, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """In a script the next one started."""
    ended: list[str] = []

    def conduct(*_: Any) -> str:
        with interruptible(lambda: ended.append("in order")):
            signal.raise_signal(signal.SIGINT)
        return "what was found"

    monkeypatch.setattr(f"duetto.tools.{where}.api.conduct", conduct)
    with pytest.raises(KeyboardInterrupt):
        call("td3", "Pendulum-v1", steps=100, evaluate_every=50)
    assert ended == ["in order"]
    assert "Stopped by SIGINT. The same call continues." in caplog.text


def test_a_signal_is_passed_on_also_where_the_run_then_fails(caplog: pytest.LogCaptureFixture):
    """Its checkpoint finds the disk full, say. What would have ended the process unsaid is logged first."""

    def fails() -> None:
        with passed_on(), interruptible(lambda: None):
            signal.raise_signal(signal.SIGHUP)
            raise DuettoError("the disk is full")

    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))
    try:
        with pytest.raises(DuettoError, match="the disk is full"):
            fails()
        assert heard == [signal.SIGHUP]
        assert signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        assert "DuettoError: the disk is full" in caplog.text
    finally:
        signal.signal(signal.SIGHUP, before)
