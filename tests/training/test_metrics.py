"""Metrics: means over updates, recent episodes, custom scalars, errors for NaN and infinity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duetto.environments import Episode
from duetto.errors import NonFiniteError, UsageError
from duetto.learners.base import Metrics
from duetto.storage.logs import JsonLines
from duetto.training.metrics import RECENT, MetricLog


@pytest.fixture
def log(tmp_path: Path):
    log = MetricLog(tmp_path)
    yield log
    log.close()


def update(**values: float) -> Metrics:
    return Metrics(tuple(values), np.array(list(values.values()), np.float32), None)


def learning_metrics(line: dict) -> dict:
    return {key: value for key, value in line.items() if key.startswith("learn/")}


def test_learning_metrics_are_means_since_the_last_line(log: MetricLog):
    for step, loss in enumerate([1.0, 3.0, 8.0], 1):
        log.add(step, update(critic_loss=loss))
    assert learning_metrics(log.write(3, {})) == {"learn/critic_loss": 4.0}
    log.add(4, update(critic_loss=5.0))
    assert learning_metrics(log.write(4, {"learn/updates": 4})) == {"learn/critic_loss": 5.0, "learn/updates": 4}
    assert learning_metrics(log.write(5, {})) == {}


def test_returns_and_lengths_average_the_last_100_episodes(log: MetricLog):
    assert log.recent_return is None
    empty = log.write(0, {})
    assert (empty["train/episodes"], empty["train/return"], empty["train/length"]) == (0, None, None)
    log.add_episodes([Episode(0, float(i), 2 * i) for i in range(RECENT + 20)])
    line = log.write(1, {})
    assert line["train/episodes"] == 120
    assert line["train/return"] == log.recent_return == np.mean(np.arange(20, 120))
    assert line["train/length"] == 2 * np.mean(np.arange(20, 120))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_metric_is_reported_with_its_step(log: MetricLog, value: float):
    log.add(11, update(critic_loss=1.0, q_mean=2.0))
    log.add(12, update(critic_loss=1.0, q_mean=value))
    with pytest.raises(NonFiniteError, match=r"^q_mean is not finite in an update at step 12: .*lower learning rate"):
        log.look()


def test_metrics_are_read_only_when_a_line_is_due(log: MetricLog):
    class Device:
        looked = 0

        def __array__(self, dtype=None, copy=None):
            Device.looked += 1
            return np.array([1.0], dtype)

    for step in range(5):
        log.add(step, Metrics(("critic_loss",), Device(), None))
    assert Device.looked == 0
    log.write(5, {})
    assert Device.looked == 5


def test_invalid_scalar_names_and_values_are_refused(log: MetricLog):
    for name in ("", "/x", "x/", "a//b", "../x", "_private", "a\nb", "ü?", 3, "step", "learn/loss"):
        wrong: Any = name
        with pytest.raises(UsageError, match="cannot be a scalar's name"):
            log.scalar(wrong, 1.0)
    for value in (None, np.zeros(3), 1j, [1]):
        number: Any = value
        with pytest.raises(UsageError, match=r"(?s)scalar 'mine' is .*; it must be one number"):
            log.scalar("mine", number)


def test_full_disk_stops_tensorboard_but_not_the_run(
    log: MetricLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    log.write(1, {f"x{i}": i for i in range(20)})
    assert log._board is not None
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(log._board, "_file", full)
        for step in (2, 3):
            log.write(step, {f"x{i}": i for i in range(20)})
        log.close()
    [said] = [record.getMessage() for record in caplog.records]
    assert "tensorboard cannot be written: No space left on device. The run continues" in said
    assert [line["step"] for line in JsonLines.read(tmp_path / "metrics.jsonl")] == [1, 2, 3]
