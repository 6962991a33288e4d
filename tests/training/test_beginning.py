"""Runs that start with another run's networks, and schedules that end where they would have ended."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_run import same
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit
from line_environment import Line
from small_runs import CrashAt, CrashError, StopAt, checkpoints, outcome, small, train
from test_run import edit

import duetto
from duetto.errors import CheckpointError, UsageError
from duetto.runs.run import Run
from duetto.training.trainer import Trainer

LATER: dict[str, Any] = {"steps": 90, "evaluate_every": 60, "checkpoint_every": 30}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("made"), small(normalize_observations="collected"), steps=100)


def begun(folder: Path, made: Run, algorithm: Any = None, **options: Any) -> tuple[Run, dict[str, Any]]:
    """A run that starts from another, and what it had before its first step."""
    seen: dict[str, Any] = {}

    def look(trainer: Trainer) -> None:
        if not seen:
            seen.update(trainer.learner.state_dict(), notices=list(trainer.notices), rows=trainer.memory.written.sum())

    algorithm = algorithm or small(normalize_observations="collected", random_steps=0, learning_starts=10**6)
    return train(folder, algorithm, from_run=made, callbacks=[look], **LATER | options), seen


def parameters(run: Run, checkpoint: str = "last") -> Any:
    store = checkpoints(run)
    loaded = store.load_best() if checkpoint == "best" else store.load_latest(memory=False)
    return loaded.state["learner"]["parameters"]


@pytest.mark.parametrize("checkpoint", ["last", "best", "80"])
def test_it_begins_with_the_others_networks_and_says_where_they_are_from(made: Run, tmp_path: Path, checkpoint: str):
    run, seen = begun(tmp_path, made, from_checkpoint=checkpoint)
    if checkpoint != "80":
        assert same(seen["parameters"], parameters(made, checkpoint))
    agent = made.agent(checkpoint)
    assert run.evaluations()[0]["mean_return"] == made.evaluate(1, checkpoint).mean_return
    began = Run(run.path).config.began_from
    assert began is not None
    assert len(Run(run.path).config.signature or "") == 64
    assert began == {
        "run": str(made.path.absolute()),
        "checkpoint": checkpoint,
        "optimizers": False,
        "memory": False,
        "step": agent.step,
    }
    assert not seen["optimizers"]["actor"]["steps"]
    assert seen["notices"][1:] == []  # but that there will be no update
    run.resume(steps=95)
    assert Run(run.path).config.began_from is not None


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_with_other_hyper_parameters_on_either_framework_and_with_the_optimisers(
    made: Run, tmp_path: Path, backend: str
):
    algorithm = small(normalize_observations="collected", critic_learning_rate=1e-5, batch_size=8)
    run, seen = begun(tmp_path, made, algorithm, backend=backend, from_optimizers=True, num_envs=2, steps=40)
    theirs = checkpoints(made).load_latest(memory=False).state["learner"]["optimizers"]
    assert seen["optimizers"]["critic"]["steps"] >= theirs["critic"]["steps"] > 0
    assert "its first 30 actions are random. With --random-steps 0 they are the policy's." in seen["notices"][0]
    assert checkpoints(run).load_latest().step == 40


def test_with_the_memory(made: Run, tmp_path: Path):
    run, seen = begun(tmp_path, made, small(normalize_observations="collected", random_steps=0), from_memory=True)
    assert seen["rows"] == 101  # and a step of its own
    assert seen["updates"] >= 1  # it need not wait for `learning_starts`
    memory = outcome(run)["memory"]
    theirs = outcome(made)["memory"]
    assert len(memory["reward"]) == 120
    np.testing.assert_array_equal(memory["reward"][:30], theirs["reward"][70:])
    resumed = Run(run.path).resume(steps=100)
    assert checkpoints(resumed).load_latest().step == 100


def test_seeds_that_begin_with_one_memory_draw_their_own_items_from_it(made: Run, tmp_path: Path):
    def drawn(seed: int) -> list[int]:
        trainers: list[Trainer] = []
        chosen: dict[str, Any] = LATER | {"steps": 1, "from_run": made, "from_memory": True, "name": f"seed{seed}"}
        algorithm = small(normalize_observations="collected", random_steps=0)
        train(tmp_path, algorithm, seed=seed, callbacks=[trainers.append], **chosen)
        memory: Any = trainers[0].memory
        return memory.sample(8).index.tolist()

    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("crash", [None, 5])
def test_what_it_remembers_counts_where_it_says_whether_it_will_learn(made: Run, tmp_path: Path, crash: int | None):
    def of(starts: int) -> tuple[list[str], int]:
        """What was said, where that many steps come before the first update, and updates."""
        trainers: list[Trainer] = []
        algorithm = small(normalize_observations="collected", random_steps=0, learning_starts=starts)
        short: dict[str, Any] = LATER | {"steps": 20, "from_run": made, "from_memory": True, "checkpoint_every": 4}
        if crash is None:
            train(tmp_path, algorithm, callbacks=[trainers.append], **short)
        else:
            with pytest.raises(CrashError):
                train(tmp_path, algorithm, name=f"killed{starts}", callbacks=[CrashAt(crash)], **short)
            Run(tmp_path / f"killed{starts}").resume(on_start=trainers.append)
        return list(trainers[0].notices), trainers[0].learner.updates

    assert of(119) == ([], 1)  # a hundred are remembered
    [notice], updates = of(120)
    assert "there will be no update, because learning_starts is 120" in notice
    assert updates == 0


def test_killed_before_its_first_checkpoint_it_begins_there_again(made: Run, tmp_path: Path):
    options: dict[str, Any] = LATER | {"from_run": made}
    with pytest.raises(CrashError):
        train(tmp_path, made.config.algorithm, name="killed", callbacks=[CrashAt(20)], **options)
    whole = train(tmp_path, made.config.algorithm, name="whole", **options)
    again = Run(tmp_path / "killed").resume()
    assert same(outcome(again)["state"]["learner"], outcome(whole)["state"]["learner"])


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        ({}, {"environment": Line}, "The run was made with the observation space"),
        ({"hidden": (16,)}, {}, "do not fit this network: missing [], unknown"),
        ({"hidden": (16, 16), "discount": 0.5}, {}, ": Its hidden is [32, 32], here [16, 16]. "),
        ({"hidden": (16, 16)}, {"from_checkpoint": "best"}, ": Its hidden is [32, 32], here [16, 16]. "),
        ({"normalize_observations": "off"}, {}, "has statistics of all observations"),
        ({}, {"from_checkpoint": "best", "from_memory": True}, "The best checkpoint has networks only"),
        ({}, {"from_checkpoint": "7"}, "has no checkpoint at step 7"),
        ({"prioritized": True}, {"from_memory": True}, "a new run can also start without the other's memory."),
        ({"replay_capacity": 50}, {"from_memory": True}, "Set replay_capacity and the number of environments back."),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    made: Run, tmp_path: Path, algorithm: dict[str, Any], options: dict[str, Any], sentence: str
):
    agent = small(**{"normalize_observations": "collected"} | algorithm)
    with pytest.raises((UsageError, CheckpointError)) as refusal:
        train(tmp_path, agent, from_run=made, **LATER | options)
    assert sentence in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_another_algorithm_is_named(made: Run, tmp_path: Path):
    with pytest.raises(UsageError, match=r": That run is of td3, this one of sac, whose networks are others\. "):
        train(tmp_path, small("sac", normalize_observations="collected"), from_run=made, **LATER)


def test_what_is_no_run(tmp_path: Path):
    with pytest.raises(UsageError, match="nowhere is no run to start from: it has no checkpoints"):
        train(tmp_path, from_run=tmp_path / "nowhere", **LATER)


def test_how_to_begin_is_nothing_without_a_run_to_begin_from(tmp_path: Path):
    for options in ({"from_memory": True}, {"from_checkpoint": 7}, {"from_optimizers": True}):
        with pytest.raises(UsageError, match=r"--from-(memory|checkpoint|optimizers): of which run\?"):
            train(tmp_path, **LATER | options)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------- schedules
def rates(run: Run) -> dict[int, float]:
    return {line["step"]: line["learn/actor_learning_rate"] for line in run.metrics()}


def test_more_steps_stretch_schedules_and_say_so(tmp_path: Path):
    algorithm = small(learning_rate_decay="linear", actor_learning_rate=0.01, exploration_final_scale=0.5)
    run = train(tmp_path, algorithm, steps=100, evaluate_every=0)
    said: list[str] = []
    run.resume(steps=200, on_start=lambda trainer: said.extend(trainer.notices))
    assert said == [
        "Schedules end at step 200 now, not at 100: actor's learning rate is 0.005 now, not 0; critic's learning rate "
        "is 0.0005 now, not 0; the exploration's scale is 0.75 now, not 0.5. With --keep-schedule (keep_schedule=True) "
        "they stay what they were."
    ]
    assert rates(run)[150] == pytest.approx(0.0025)


def test_kept_they_end_where_they_would_have_ended(tmp_path: Path):
    run = train(tmp_path, small(learning_rate_decay="linear", learning_rate_final=0.1), steps=100, evaluate_every=0)
    said: list[str] = []
    run.resume(steps=150, keep_schedule=True, on_start=lambda trainer: said.extend(trainer.notices))
    assert said == []
    assert rates(run)[125] == rates(run)[100] == pytest.approx(1e-4)
    assert (run.config.run.steps, run.config.run.schedule_steps) == (150, 100)
    run.resume(steps=175, on_start=lambda trainer: said.extend(trainer.notices))  # as it was decided
    assert said == []
    assert rates(duetto.Run(run.path))[175] == pytest.approx(1e-4)
    with pytest.raises(UsageError, match="Schedules change with the number of steps only: give --steps"):
        run.resume(keep_schedule=True)


def test_rates_that_have_ended_at_0_learn_no_more_and_that_is_said(tmp_path: Path):
    run = train(tmp_path, small(learning_rate_decay="linear"), steps=60, evaluate_every=0)
    said: list[str] = []
    before = parameters(run)
    run.resume(steps=80, keep_schedule=True, on_start=lambda trainer: said.extend(trainer.notices))
    assert said == [
        "All learning rates are 0 from step 60 on, where the schedules end: nothing is learned after it. Without "
        "--keep-schedule they would end with the run."
    ]
    assert same(parameters(run)["actor"], before["actor"])
    said.clear()
    run.resume(steps=100, on_start=lambda trainer: said.extend(trainer.notices))  # as it was decided
    assert said == [
        "All learning rates are 0 from step 60 on, where the schedules end: nothing is learned after it. With "
        "`schedule_steps: 0` in its config.yaml they end with the run."
    ]


@pytest.mark.parametrize("how", ["steps", "schedule_steps", "in Python"])
def test_schedules_that_an_edit_moves_are_said_too(tmp_path: Path, how: str):
    run = train(tmp_path, small(learning_rate_decay="linear"), steps=100, evaluate_every=0, callbacks=[StopAt(60)])
    given = {}
    if how == "in Python":
        given["schedule_steps"] = 200
    else:
        run = edit(run, {f"run.{how}": 200})
    said: list[str] = []
    run.resume(**given, callbacks=[StopAt(80)], on_start=lambda trainer: said.extend(trainer.notices))
    assert said[0].startswith("Schedules end at step 200 now, not at 100: actor's learning rate is 0.0007 now, not 0.")
    history = Run(run.path).config.history
    assert [event.what for event in history.changed] == ["schedules end at step 200, not at 100"]


def test_where_nothing_is_measured_in_the_runs_length_nothing_is_said(tmp_path: Path):
    run = train(tmp_path, steps=100, evaluate_every=0)
    said: list[str] = []
    run.resume(steps=120, on_start=lambda trainer: said.extend(trainer.notices))
    assert said == []


class Apart(Line):
    """A line whose observations, or actions, have other bounds, or lie far away."""

    def __init__(self, observation: float = np.inf, action: float = 1.0, far: float = 0.0, shape: Any = (2,)) -> None:
        super().__init__()
        self.observation_space = Box(-observation, observation, shape, np.float32)
        self.action_space = Box(-action, action, (2,), np.float32)
        self.far = far

    def see(self) -> Any:
        return np.full(self.observation_space.shape, self.position + self.far, np.float32)

    def step(self, action: Any) -> Any:
        return self.see(), 0.0, False, False, {}


def test_only_bounds_that_matter_are_compared(tmp_path: Path):
    options: dict[str, Any] = {"steps": 20, "evaluate_every": 0}
    run = train(tmp_path, small(), Apart, **options)
    inside, wide = partial(Apart, 9.0), partial(Apart, action=3.0)
    assert run.evaluate(1, environment=lambda: TimeLimit(inside(), 5)).lengths == [5]
    assert train(tmp_path, small(), inside, from_run=run, **options).agent().step == 20
    sentence = r"Box\(2,\) of float32 from -3 to 3; the agent was trained with Box\(2,\) of float32 from -1 to 1"
    with pytest.raises(UsageError, match=sentence):
        run.evaluate(1, environment=wide)
    with pytest.raises(UsageError, match=sentence):  # it ended in a traceback
        Run(run.path, wide).video()
    with pytest.raises(UsageError, match=sentence):
        Run(run.path, wide).watch()
    with pytest.raises(UsageError, match=sentence):
        duetto.export(Run(run.path, wide), "torch")
    with pytest.raises(UsageError, match=r"from -1 to 1; Apart has Box\(2,\) of float32 from -3 to 3\. Choose"):
        train(tmp_path, small(), wide, from_run=run, **options)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"far": 1.7e9}, "The observation reaches 1.7e+09, where float32 rounds to multiples of 128"),
        (
            {"shape": (20, 20, 3)},
            "The observation, float32 of shape (20, 20, 3), looks like an image, but is treated as a vector of",
        ),
        ({}, ""),
    ],
)
def test_observations_that_lose_something_are_said(tmp_path: Path, how: dict[str, Any], sentence: str):
    said: list[str] = []
    options: dict[str, Any] = {"steps": 40, "evaluate_every": 0}
    train(tmp_path, small(), partial(Apart, **how), callbacks=[lambda run: said.extend(run.notices)], **options)
    assert any(one.startswith(sentence) for one in said) if sentence else not said


def test_a_resume_that_fails_leaves_what_was_logged_where_it_is(made: Run, tmp_path: Path):
    """Its checkpoints are gone, and the run that it started with is not there for a while."""
    shutil.copytree(made.path, tmp_path / "first")
    run, _ = begun(tmp_path, Run(tmp_path / "first"))
    shutil.rmtree(run.path / "checkpoints")
    logged = (run.path / "metrics.jsonl").read_bytes()
    (tmp_path / "first").rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="which cannot be had"):
            Run(run.path).resume()
        assert (run.path / "metrics.jsonl").read_bytes() == logged
        assert not list(run.path.glob("before*"))
    (tmp_path / "away").rename(tmp_path / "first")
    said: list[str] = []
    Run(run.path).resume(on_start=lambda trainer: said.extend(trainer.notices))
    assert f"What it had logged is in {run.path / 'before'}." in " ".join(said)
    assert (run.path / "before" / "metrics.jsonl").read_bytes() == logged


def test_a_resume_that_fails_before_anything_was_logged_leaves_no_logs(made: Run, tmp_path: Path):
    shutil.copytree(made.path, tmp_path / "first")
    run, _ = begun(tmp_path, Run(tmp_path / "first"))
    shutil.rmtree(run.path / "checkpoints")
    for name in ("metrics.jsonl", "evaluations.csv"):
        (run.path / name).unlink()
    (tmp_path / "first").rename(tmp_path / "away")
    with pytest.raises(CheckpointError):
        Run(run.path).resume()
    assert not (run.path / "metrics.jsonl").exists()
    assert not (run.path / "evaluations.csv").exists()
