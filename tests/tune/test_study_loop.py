"""The loop of a study with workers that train nothing: order, pruning, and workers that die."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
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
from duetto.tools.tune.api import planned_study
from duetto.tools.tune.sampler import Sampler
from duetto.tools.tune.study import Plan, Study

STEPS, EVERY = 100, 20
Returns = Callable[[Job, int], float]


class StubWorker:
    """A worker that reports evaluations at once, and records the order of events."""

    log: list[tuple[str, int, int]]  # trial, seed, step of the evaluation (0: started, -1: ended)
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
    center = TD3(random_steps=10, learning_starts=10)
    return planned_study(RunSpec(center, "Pendulum-v1", run), [3, 4], {"tau": "auto"}, search_only=True)


def run_study(
    plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch, returns: Returns, trials: int, jobs: int = 1, **more: Any
) -> tuple[Study, list[tuple[str, int, int]]]:
    stub = type("StubWorker", (StubWorker,), {"log": [], "returns": staticmethod(returns), **more})
    monkeypatch.setattr(pool, "WorkerProcess", stub)
    start = {name: getattr(plan.center, name) for name in plan.space}
    sampler = Sampler(folder / "journal.jsonl", plan.space, 3, start)
    made = Study(plan, folder, sampler, trials, jobs)
    made.work()
    return made, stub.log


def test_one_worker_trains_seeds_in_order(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, log = run_study(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=2)
    first = [(seed, step) for trial, seed, step in log if trial == "0000"]
    assert first == [(seed, step) for seed in (3, 4) for step in (0, 20, 40, 60, 80, 100, -1)]
    assert [trial for trial, _, _ in log] == ["0000"] * 14 + ["0001"] * 14


def test_workers_equal_jobs_and_oldest_trial_starts_first(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _, log = run_study(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=4, jobs=3)
    begun = [(trial, seed) for trial, seed, step in log if step == 0]
    assert begun == [(f"{trial:04}", seed) for trial in range(4) for seed in (3, 4)]
    at_work, most = set(), 0
    for trial, seed, step in log:
        at_work = at_work - {(trial, seed)} if step == -1 else at_work | {(trial, seed)}
        most = max(most, len(at_work))
    assert most == 3


def test_trial_is_pruned_in_its_first_seed(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, log = run_study(
        plan, tmp_path, monkeypatch, lambda job, step: -9.0 if job.folder.parent.name == "0006" else step, trials=8
    )
    states = [trial.state for trial in made.sampler.trials()]
    assert states == ["complete"] * 6 + ["pruned"] + ["complete"]
    assert [(seed, step) for trial, seed, step in log if trial == "0006"] == [(3, 0), (3, 20), (3, -1)]
    assert made.sampler.trials()[6].reason == "Seed 3 had -9 at step 20."
    assert made.sampler.trials()[0].value == 100.0  # of five evaluations the last one is the score


def test_no_seed_is_pruned_during_its_random_steps(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also if another seed of its trial is further."""
    late = replace(plan, config=replace(plan.config, algorithm=replace(plan.center, random_steps=60)))
    made, _ = run_study(
        late, tmp_path, monkeypatch, lambda job, step: -9.0 if job.folder.parent.name == "0006" else step, 8, jobs=2
    )
    assert made.sampler.trials()[6].reason.endswith(" had -9 at step 60.")


def test_dead_worker_fails_only_its_trial(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, _ = run_study(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=3, dies=("0001", 4, 40))
    assert [trial.state for trial in made.sampler.trials()] == ["complete", "failed", "complete"]
    [notice] = made.notices
    assert notice.startswith("Trial 1 failed: Its process ended with the code -9.")
    assert "Its options: tau 0." in notice


@pytest.mark.parametrize(
    ("word", "step", "cause"),
    [
        (("gone", -15), 40, "It was stopped by a signal."),
        (("ended", True, []), 40, "It was stopped by a signal."),
        (("failed", HINDERED, "It needs 3 MB more room.", ""), 40, "It needs 3 MB more room."),
        (("failed", IN_USE, "It is in use.", ""), 120, "It is in use."),  # 120: only the last checkpoint is missing
    ],
)
def test_external_stop_ends_study_and_keeps_its_trial(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: tuple[Any, ...], step: int, cause: str
):
    """For example a full disk, or a SIGTERM that reaches a worker before its parent."""
    how: dict[str, Any] = {"dies": ("0001", 4, step), "last_word": word, "log": []}
    sentence = f"Trial 1, seed 4, was stopped. Remove the cause; the same call continues.\n{cause}"
    with pytest.raises(DuettoError, match=f"^{re.escape(sentence)}$"):
        run_study(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=4, **how)
    assert {trial for trial, _, _ in how["log"]} == {"0000", "0001"}
    again, log = run_study(plan, tmp_path, monkeypatch, lambda job, step: 0.0, trials=4)
    assert [trial.state for trial in again.sampler.trials()] == ["complete"] * 4
    assert {trial for trial, _, _ in log} == {"0001", "0002", "0003"}
