"""The loop of a sweep, with a pool that trains nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duetto.algorithms import TD3
from duetto.errors import UsageError
from duetto.learners import runtime
from duetto.runs.pool import FAILED, HINDERED, IN_USE, Job
from duetto.runs.spec import RunSpec
from duetto.storage.config import Config, RunOptions
from duetto.tools.sweep import sweep as loop
from duetto.tools.sweep.api import results_of
from duetto.tools.sweep.sweep import Experiment, PlannedRun, Sweep, last_evaluation, runs

RUN = RunOptions(steps=100, backend="torch", device="cpu")


def complete(job: Job, config: Config | None = None) -> None:
    """Leave a whole run in a job's folder, of a config."""
    (job.folder / "checkpoints" / "step-000000000100").mkdir(parents=True, exist_ok=True)
    (config or job.config).save(job.folder / "config.yaml")
    (job.folder / "evaluations.csv").write_text("step,mean_return\n0,-9\n100,-5\n")


class Stub:
    """Each job ends in the next round, as it is written; by default its steps are made."""

    def __init__(self, most: int, ends: dict[str, list[Any]] | None = None) -> None:
        self.most, self.ends = most, ends or {}
        self.log: list[str] = []
        self.at_work: list[Job] = []
        self.stopped: list[str] = []
        self.closed = False

    def room(self) -> bool:
        return len(self.at_work) < self.most

    def start(self, job: Job) -> None:
        self.log.append(job.name)
        self.at_work.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, tuple[Any, ...]]]:
        job = self.at_work.pop(0)
        left = self.ends.get(job.name, [])
        end = left.pop(0) if left else "complete"
        if end != "complete":
            return [(job, end)]
        complete(job)
        return [(job, ("started", [], 0)), (job, ("ended", False, ["It took 3 s.", f"See {job.folder}."]))]

    def stop(self, job: Job) -> None:
        self.stopped.append(job.name)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def planned(tmp_path: Path) -> list[PlannedRun]:
    experiments = [Experiment(RunSpec(TD3(), "Pendulum-v1", RUN, name=name), (0, 1, 2)) for name in ("a", "b")]
    return runs(experiments, tmp_path)


def test_the_first_seeds_of_all_settings_come_first(planned: list[PlannedRun], tmp_path: Path):
    pool = Stub(2)
    sweep = Sweep(tmp_path, planned, pool)
    sweep.work()
    assert pool.log == ["a-s0", "b-s0", "a-s1", "b-s1", "a-s2", "b-s2"]
    assert [run.state for run in sweep.runs] == ["complete"] * 6
    assert [run.complete for run in sweep.runs] == [True] * 6
    assert len(sweep.notices) == 2  # what all of them say is heard once
    assert sweep.notices[0] == "a-s0: It took 3 s."


def test_a_run_whose_last_evaluation_was_broken_off_is_taken_up(planned: list[PlannedRun], tmp_path: Path):
    """By a signal, behind its last step: the table had an earlier evaluation of it, and no call made the last one."""
    Sweep(tmp_path, planned[:3], Stub(1)).work()
    (planned[1].folder / "evaluations.csv").write_text("step,mean_return\n0,-9\n50,-7\n")
    assert [run.complete for run in planned[:3]] == [True, False, True]
    pool = Stub(1, {planned[1].job.name: [("ended", False, [])]})
    Sweep(tmp_path, planned[:3], pool).work()
    assert pool.log == [planned[1].job.name]


def test_what_is_complete_is_not_begun(planned: list[PlannedRun], tmp_path: Path):
    Sweep(tmp_path, planned[:3], Stub(1)).work()
    pool = Stub(1)
    Sweep(tmp_path, planned, pool).work()
    assert pool.log == ["b-s1", "a-s2", "b-s2"]


@pytest.mark.parametrize(
    ("end", "reason", "log"),
    [
        (("failed", FAILED, "It is stuck.", "line 3"), "It is stuck.", "It is stuck.\nline 3\n"),
        (("gone", -11), "Its process ended with the code -11.", "Its process ended with the code -11.\n"),
        (("ended", True, []), "It was stopped by a signal.", "It was stopped by a signal.\n"),
    ],
)
def test_a_failure_does_not_end_the_others(planned: list[PlannedRun], tmp_path: Path, end: Any, reason: str, log: str):
    sweep = Sweep(tmp_path, planned, Stub(1, {"b-s0": [end]}))
    sweep.work()
    (failed,) = [run for run in sweep.runs if run.state == "failed"]
    assert (failed.name, failed.reason) == ("b-s0", reason)
    assert failed.job.log.read_text() == log
    assert [run.state for run in sweep.runs].count("complete") == 5


def test_what_another_process_is_at_is_tried_again_when_nothing_else_is_left(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.0)
    busy = ("failed", IN_USE, "in use by process 7", "")
    pool = Stub(1, {"a-s0": [busy, busy]})
    said: list[str] = []
    sweep = Sweep(tmp_path, planned, pool)
    sweep.on_event = said.append
    sweep.work()
    assert pool.log == ["a-s0", "b-s0", "a-s1", "b-s1", "a-s2", "b-s2", "a-s0", "a-s0"]
    assert [run.state for run in sweep.runs] == ["complete"] * 6
    assert said.count("a-s0  is in use by another process; waiting for it") == 1


def test_what_another_process_has_completed_is_not_begun(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.0)

    def elsewhere(line: str) -> None:
        if line.startswith("b-s2"):
            complete(planned[0].job)

    pool = Stub(1, {"a-s0": [("failed", IN_USE, "", "")]})
    sweep = Sweep(tmp_path, planned, pool)
    sweep.on_event = elsewhere
    sweep.work()
    assert pool.log.count("a-s0") == 1
    assert sweep.runs[0].state == "complete"


@pytest.mark.parametrize("at_work", [False, True])
def test_what_another_process_has_completed_with_other_options_is_not_complete(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_work: bool
):
    """Two sweeps of one folder that were planned before either started counted each other's runs as their own."""
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.0)
    pool = Stub(1, {"a-s0": [("failed", IN_USE, "", "")] * at_work + [("failed", HINDERED, "started otherwise", "")]})
    sweep = Sweep(tmp_path, planned, pool)
    start = pool.start

    def begins(job: Job) -> None:
        complete(planned[0].job, replace(planned[0].config, algorithm=TD3(policy_delay=1)))
        start(job)

    monkeypatch.setattr(pool, "start", begins)
    sweep.work()
    assert pool.log.count("a-s0") == 1 + at_work  # that it was started otherwise is for its process to see
    assert [(run.name, run.reason) for run in sweep.runs if run.state == "failed"] == [("a-s0", "started otherwise")]


def test_what_another_process_is_at_when_it_is_stopped_waits(planned: list[PlannedRun], tmp_path: Path):
    class Interrupted(Stub):
        def wait(self, seconds: float) -> list[tuple[Job, tuple[Any, ...]]]:
            sweep._stop()
            return super().wait(seconds)

    sweep = Sweep(tmp_path, planned, Interrupted(1, {"a-s0": [("failed", IN_USE, "", "")]}))
    sweep.work()
    assert [run.state for run in results_of(sweep).runs] == ["waiting"] * 6


def test_names_that_no_run_can_have_are_refused_before_any_begins(tmp_path: Path):
    for name in (".hidden", "+plus", "a" * 251):
        with pytest.raises(UsageError, match="cannot be a run's name: "):
            runs([Experiment(RunSpec(TD3(), "Pendulum-v1", RUN, name=name), (0,))], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_stop_lets_what_works_end_and_begins_nothing(planned: list[PlannedRun], tmp_path: Path):
    class Interrupted(Stub):
        def wait(self, seconds: float) -> list[tuple[Job, tuple[Any, ...]]]:
            sweep._stop()
            return super().wait(seconds)

    pool = Interrupted(2, {"a-s0": [("ended", True, [])], "b-s0": [("ended", True, [])]})
    sweep = Sweep(tmp_path, planned, pool)
    sweep.work()
    assert pool.log == ["a-s0", "b-s0"]
    assert pool.stopped == ["b-s0"]  # the other one has ended
    assert [run.state for run in sweep.runs] == ["waiting"] * 6


def test_an_error_closes_the_pool(planned: list[PlannedRun], tmp_path: Path):
    def fail(_: str) -> None:
        raise KeyboardInterrupt

    pool = Stub(2)
    sweep = Sweep(tmp_path, planned, pool)
    sweep.on_event = fail
    with pytest.raises(KeyboardInterrupt):
        sweep.work()
    assert pool.closed


# ---------------------------------------------------------------------------------------------------- how far a run is
def test_the_last_evaluation_that_can_be_read(tmp_path: Path):
    assert last_evaluation(tmp_path) is None
    table = tmp_path / "evaluations.csv"
    table.write_text("step,mean_return\n0,-9.0\n30,-1.5\n")
    assert last_evaluation(tmp_path) == (30, -1.5)
    table.write_text("step,mean_return\n")
    assert last_evaluation(tmp_path) is None


@pytest.mark.parametrize(("said", "most"), [(None, 4), ("2", 2), ("2,1", 2), ("16", 4), ("0", 4), ("many", 4)])
def test_threads_are_a_process_share_of_the_cores(monkeypatch: pytest.MonkeyPatch, said: str | None, most: int):
    monkeypatch.setattr(runtime, "cores", lambda: 8)
    monkeypatch.delenv(runtime.OMP_THREADS, raising=False)
    if said is not None:
        monkeypatch.setenv(runtime.OMP_THREADS, said)
    assert runtime.available_threads() == most
