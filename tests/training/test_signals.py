"""A signal during `sweep` or `tune`: the call stops cleanly, then the signal is raised again."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import duetto
from duetto.training.signals import interruptible


@pytest.mark.parametrize(("call", "where"), [(duetto.sweep, "sweep"), (duetto.tune, "tune")])
def test_sweep_and_tune_raise_the_signal_after_stopping(
    call: Any, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """So that a script does not continue with its next call."""
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
