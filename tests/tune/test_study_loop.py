"""The loop, with processes that train nothing: who works when, what is pruned, and what a process's death means."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from duetto.algorithms import TD3
from duetto.errors import DuettoError
from duetto.runs import pool
from duetto.runs.pool import HINDERED, IN_USE, Job
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions
from duetto.tools.tune import study
from duetto.tools.tune.api import planned_study
from duetto.tools.tune.sampler import Sampler
from duetto.tools.tune.study import Plan, Study

STEPS, EVERY = 100, 20
Returns = Callable[[Job, int], float]


class Stub:
    """A process that evaluates at once, and writes down who works in which order."""

    log: list[tuple[str, int, int]]  # trial, seed, step evaluated (0: it started; -1: it ended)
    returns: Returns
    dies: tuple[str, int, int] | None = None
    last_word: tuple[Any, ...] = ("gone", -9)

    def __init__(self, log: Path, threads: int) -> None:
        self.connection, self._theirs = Pipe()
        self.runs = 0

    def train(self, job: Job) -> None:
        self.job, self.step = job, 0
        self.runs += 1
        self._note(0)
        self._theirs.send(("started", [(0, -1.0)], 0))
        self.go()

    def go(self) -> None:
        self.step += EVERY
        if self.dies == (self.job.folder.parent.name, self.job.spec.options.seed, self.step):
            self._theirs.send(self.last_word)
            return
        if self.step > STEPS:
            self._note(-1)
            self._theirs.send(("ended", False, []))
            return
        self._note(self.step)
        self._theirs.send(("evaluated", self.step, type(self).returns(self.job, self.step)))

    def send(self, word: str) -> None:
        if word == "go":
            self.go()
            return
        self._note(-1)
        self._theirs.send(("ended", True, []))

    def receive(self) -> tuple[Any, ...] | None:
        return self.connection.recv() if self.connection.poll() else None

    def close(self) -> None:
        self._theirs.close()

    kill = close

    def _note(self, step: int) -> None:
        self.log.append((self.job.folder.parent.name, self.job.spec.options.seed, step))


@pytest.fixture(scope="module")
def plan() -> Plan:
    run = RunOptions(steps=STEPS, evaluate_every=EVERY, backend="torch", device="cpu", seed=3)
    centre = TD3(random_steps=10, learning_starts=10)
    return planned_study(RunSpec(centre, "Pendulum-v1", run), [3, 4], {"tau": "auto"}, search_only=True)


def worked(
    plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch, returns: Returns, trials: int, jobs: int = 1, **more: Any
) -> tuple[Study, list[tuple[str, int, int]]]:
    stub = type("Stub", (Stub,), {"log": [], "returns": staticmethod(returns), **more})
    monkeypatch.setattr(pool, "WorkerProcess", stub)
    start = {name: getattr(plan.center, name) for name in plan.space}
    sampler = Sampler(folder / "journal.jsonl", plan.space, 3, start, plan.prune_from)
    made = Study(plan, folder, sampler, trials, jobs)
    made.work()
    return made, stub.log


def test_one_process_trains_one_seed_after_the_other(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, log = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=2)
    first = [(seed, step) for trial, seed, step in log if trial == "0000"]
    assert first == [(seed, step) for seed in (3, 4) for step in (0, 20, 40, 60, 80, 100, -1)]
    assert [trial for trial, _, _ in log] == ["0000"] * 14 + ["0001"] * 14


def test_as_many_processes_as_jobs_and_the_oldest_trial_first(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, log = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=4, jobs=3)
    begun = [(trial, seed) for trial, seed, step in log if step == 0]
    assert begun == [(f"{trial:04}", seed) for trial in range(4) for seed in (3, 4)]
    at_work, most = set(), 0
    for trial, seed, step in log:
        at_work = at_work - {(trial, seed)} if step == -1 else at_work | {(trial, seed)}
        most = max(most, len(at_work))
    assert most == 3


def test_a_trial_is_pruned_in_its_first_seed(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, log = worked(
        plan, tmp_path, monkeypatch, lambda job, step: -9.0 if job.folder.parent.name == "0006" else step, trials=8
    )
    states = [trial.state for trial in made.sampler.trials()]
    assert states == ["complete"] * 6 + ["pruned"] + ["complete"]
    assert [(seed, step) for trial, seed, step in log if trial == "0006"] == [(3, 0), (3, 20), (3, -1)]
    assert made.sampler.trials()[6].reason == "Seed 3 had -9 at step 20."
    assert made.sampler.trials()[0].value == 100.0  # of five evaluations the last one counts


def test_seeds_that_are_evaluated_in_other_steps_have_been_seen_as_often(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Environments that reset themselves in a step of their own go a little beyond the step where one is due."""
    receive = Stub.receive

    def late(worker: Stub) -> tuple[Any, ...] | None:
        message = receive(worker)
        if message is None or message[0] != "evaluated":
            return message
        return "evaluated", message[1] + worker.job.spec.options.seed % 2, message[2]

    monkeypatch.setattr(Stub, "receive", late)
    made, _ = worked(plan, tmp_path, monkeypatch, lambda job, step: step, trials=2)
    assert [trial.state for trial in made.sampler.trials()] == ["complete"] * 2


def test_without_pruning_all_run_to_their_end(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from dataclasses import replace

    bad = replace(plan, prune=False)
    made, _ = worked(bad, tmp_path, monkeypatch, lambda job, step: -float(job.folder.parent.name), trials=8)
    assert [trial.state for trial in made.sampler.trials()] == ["complete"] * 8


def test_a_process_that_dies_fails_its_trial_alone(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, _ = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=3, dies=("0001", 4, 40))
    assert [trial.state for trial in made.sampler.trials()] == ["complete", "failed", "complete"]
    [notice] = made.notices
    assert notice.startswith("Trial 1 failed: Its process ended with the code -9.")
    assert "Its options: tau 0." in notice


@pytest.mark.parametrize("word", [("gone", -15), ("gone", -2), ("ended", True, [])])
def test_a_run_that_a_signal_ended_stops_the_study_and_fails_no_trial(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: tuple[Any, ...]
):
    """SIGTERM to a whole job may reach it before its parent: the trial was failed, and no later call took it up."""
    how: dict[str, Any] = {"dies": ("0001", 4, 40), "last_word": word}
    with pytest.raises(DuettoError, match=r"Trial 1, seed 4, was hindered\. .*\nIt was stopped by a signal\."):
        worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=2, **how)
    again, _ = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=2)
    assert [trial.state for trial in again.sampler.trials()] == ["complete", "complete"]


@pytest.mark.parametrize("kind", [HINDERED, IN_USE])
@pytest.mark.parametrize("step", [40, 120])  # 120: all evaluations were made, and the last checkpoint was not
def test_what_hinders_a_run_stops_the_study_and_uses_no_trial_up(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: int
):
    """A full disk failed every trial that was left, in a moment and for good."""
    word = ("failed", kind, "It needs 3 MB more room.", "")
    how: dict[str, Any] = {"dies": ("0001", 4, step), "last_word": word, "log": []}
    sentence = (
        r"^Trial 1, seed 4, was hindered\. Remove the cause; the same call continues\.\nIt needs 3 MB more room\.$"
    )
    with pytest.raises(DuettoError, match=sentence):
        worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=4, **how)
    assert {trial for trial, _, _ in how["log"]} == {"0000", "0001"}
    again, log = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=4)
    assert [trial.state for trial in again.sampler.trials()] == ["complete"] * 4
    assert {trial for trial, _, _ in log} == {"0001", "0002", "0003"}


def test_a_process_is_replaced_after_so_many_runs(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(study, "MAX_RUNS", 2)
    made, log = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=5)
    assert [trial.state for trial in made.sampler.trials()] == ["complete"] * 5
    assert len(log) == 5 * 14


def test_what_was_stopped_is_taken_up(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stopped: list[Study] = []

    def returns(job: Job, step: int) -> float:
        if job.folder.parent.name == "0001" and step == 60:
            stopped[0].stopped = True
        return 0.0

    original = Study.work
    monkeypatch.setattr(Study, "work", lambda self: (stopped.append(self), original(self))[1])
    made, _ = worked(plan, tmp_path, monkeypatch, returns, trials=3)
    assert [trial.state for trial in made.sampler.trials()] == ["complete", "running"]
    again, log = worked(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=3)
    assert [trial.state for trial in again.sampler.trials()] == ["complete"] * 3
    assert {trial for trial, _, _ in log} == {"0001", "0002"}
