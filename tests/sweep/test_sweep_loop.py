"""The loop of a sweep, with a pool that trains nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from duetto.algorithms import TD3
from duetto.learners import runtime
from duetto.runs.pool import FAILED, IN_USE, Job
from duetto.runs.spec import RunSpec
from duetto.storage.config import Config, RunOptions
from duetto.tools.sweep import sweep as loop
from duetto.tools.sweep.sweep import Experiment, PlannedRun, Sweep, runs

RUN = RunOptions(steps=100, backend="torch", device="cpu")


def write_complete_run(job: Job, config: Config | None = None) -> None:
    """Write the files of a complete run into a job's folder."""
    (job.folder / "checkpoints" / "step-000000000100").mkdir(parents=True, exist_ok=True)
    (config or job.config).save(job.folder / "config.yaml")
    (job.folder / "evaluations.csv").write_text("step,mean_return\n0,-9\n100,-5\n")


class StubPool:
    """A pool whose jobs end at the next `wait`. `ends` lists ends by job name; other jobs are complete."""

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
        write_complete_run(job)
        return [(job, ("started", [], 0)), (job, ("ended", False, ["It took 3 s.", f"See {job.folder}."]))]

    def stop(self, job: Job) -> None:
        self.stopped.append(job.name)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def planned(tmp_path: Path) -> list[PlannedRun]:
    experiments = [Experiment(RunSpec(TD3(), "Pendulum-v1", RUN, name=name), (0, 1, 2)) for name in ("a", "b")]
    return runs(experiments, tmp_path)


def test_sweep_trains_first_seeds_of_all_settings_first(planned: list[PlannedRun], tmp_path: Path):
    pool = StubPool(2)
    sweep = Sweep(tmp_path, planned, pool)
    sweep.work()
    assert pool.log == ["a-s0", "b-s0", "a-s1", "b-s1", "a-s2", "b-s2"]
    assert [run.state for run in sweep.runs] == ["complete"] * 6
    assert [run.complete for run in sweep.runs] == [True] * 6
    assert len(sweep.notices) == 2  # a notice that all runs give is kept once
    assert sweep.notices[0] == "a-s0: It took 3 s."


def test_sweep_skips_complete_runs_but_repeats_last_evaluation(planned: list[PlannedRun], tmp_path: Path):
    """A signal after the last step can prevent the last evaluation."""
    Sweep(tmp_path, planned[:3], StubPool(1)).work()
    (planned[1].folder / "evaluations.csv").write_text("step,mean_return\n0,-9\n50,-7\n")
    assert [run.complete for run in planned[:3]] == [True, False, True]
    pool = StubPool(1, {planned[1].job.name: [("ended", False, [])]})
    Sweep(tmp_path, planned, pool).work()
    assert pool.log == [planned[1].job.name, "b-s1", "a-s2", "b-s2"]  # complete runs are not started again


@pytest.mark.parametrize(
    ("end", "reason", "log"),
    [
        (("failed", FAILED, "It is stuck.", "line 3"), "It is stuck.", "It is stuck.\nline 3\n"),
        (("gone", -11), "Its process ended with the code -11.", "Its process ended with the code -11.\n"),
        (("ended", True, []), "It was stopped by a signal.", "It was stopped by a signal.\n"),
    ],
)
def test_failed_run_does_not_end_the_sweep(planned: list[PlannedRun], tmp_path: Path, end: Any, reason: str, log: str):
    sweep = Sweep(tmp_path, planned, StubPool(1, {"b-s0": [end]}))
    sweep.work()
    (failed,) = [run for run in sweep.runs if run.state == "failed"]
    assert (failed.name, failed.reason) == ("b-s0", reason)
    assert failed.job.log.read_text() == log
    assert [run.state for run in sweep.runs].count("complete") == 5


def test_run_in_use_is_retried_after_all_others(
    planned: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.0)
    busy = ("failed", IN_USE, "in use by process 7", "")
    pool = StubPool(1, {"a-s0": [busy, busy]})
    said: list[str] = []
    sweep = Sweep(tmp_path, planned, pool)
    sweep.on_event = said.append
    sweep.work()
    assert pool.log == ["a-s0", "b-s0", "a-s1", "b-s1", "a-s2", "b-s2", "a-s0", "a-s0"]
    assert [run.state for run in sweep.runs] == ["complete"] * 6
    assert said.count("a-s0  is in use by another process; waiting for it") == 1


def test_stopped_sweep_ends_running_jobs_and_starts_none(planned: list[PlannedRun], tmp_path: Path):
    class Interrupted(StubPool):
        def wait(self, seconds: float) -> list[tuple[Job, tuple[Any, ...]]]:
            sweep._stop()
            return super().wait(seconds)

    pool = Interrupted(2, {"a-s0": [("ended", True, [])], "b-s0": [("ended", True, [])]})
    sweep = Sweep(tmp_path, planned, pool)
    sweep.work()
    assert pool.log == ["a-s0", "b-s0"]
    assert pool.stopped == ["b-s0"]  # a-s0 has ended already
    assert [run.state for run in sweep.runs] == ["waiting"] * 6


def test_error_closes_the_worker_pool(planned: list[PlannedRun], tmp_path: Path):
    def fail(_: str) -> None:
        raise KeyboardInterrupt

    pool = StubPool(2)
    sweep = Sweep(tmp_path, planned, pool)
    sweep.on_event = fail
    with pytest.raises(KeyboardInterrupt):
        sweep.work()
    assert pool.closed


# ---------------------------------------------------------------------------------------------------- threads
@pytest.mark.parametrize(("said", "most"), [(None, 4), ("2,1", 2), ("16", 4), ("0", 4), ("many", 4)])
def test_threads_are_limited_by_cores_and_omp_num_threads(monkeypatch: pytest.MonkeyPatch, said: str | None, most: int):
    monkeypatch.setattr(runtime, "cores", lambda: 8)
    monkeypatch.delenv(runtime.OMP_THREADS, raising=False)
    if said is not None:
        monkeypatch.setenv(runtime.OMP_THREADS, said)
    assert runtime.available_threads() == most
