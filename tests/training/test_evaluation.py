"""Evaluations: whole episodes in environments of their own."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from line_environment import Components, Line
from small_runs import BRIEF, CrashAt, CrashError, differences, outcome, small, train
from vector_envs import Whole

import duetto
from duetto import environments
from duetto.environments import make
from duetto.environments.engines import GymVectorEngine
from duetto.environments.vec_env import VecEnv
from duetto.errors import UsageError
from duetto.training import evaluation as evaluation_module
from duetto.training.evaluation import Evaluation, evaluate


class Lengths(Line):
    """Episodes of 3 to 30 steps, as its seed says; the reward of each step is the seed's number too."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        self.length = int(self.np_random.integers(3, 30))
        self.number = float(self.np_random.normal())
        return obs, info

    def step(self, action: np.ndarray) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.number, *rest


def still(obs: np.ndarray) -> np.ndarray:
    return np.zeros((len(obs), 2), np.float32)


def expected(seed: int, episodes: int) -> Evaluation:
    """By Gymnasium's own loop: episode k starts from seed + 100 + k."""
    returns, lengths = [], []
    for k in range(episodes):
        environment = Lengths()
        environment.reset(seed=seed + 100 + k)
        steps = [environment.step(np.array([1, 2.25], np.float32)) for _ in range(environment.length)]
        assert steps[-1][3]
        returns.append(sum(reward for _, reward, *_ in steps))
        lengths.append(len(steps))
    return Evaluation(np.array(returns), np.array(lengths))


@pytest.mark.parametrize("num_envs", [1, 2, 4, 10])
def test_each_episode_has_its_own_seed_however_many_run_side_by_side(num_envs: int):
    stepper = environments.make(Lengths, num_envs=num_envs)
    result, wanted = evaluate(still, stepper, 10, seed=7), expected(7, 10)
    assert len(set(wanted.lengths)) > 5
    np.testing.assert_array_equal(result.lengths, wanted.lengths)
    np.testing.assert_allclose(result.returns, wanted.returns, rtol=1e-12)


@pytest.mark.parametrize("environment", ["Pendulum-v1", Components])
def test_it_changes_nothing_in_training(tmp_path: Path, environment: Any):
    """Normalisation, exploration, episodes that are under way: all as if nobody had looked."""
    algorithm = small(normalize_observations="collected", exploration="ou", prioritized=True)
    with_it, without = (outcome(train(tmp_path, algorithm, environment, evaluate_every=every)) for every in (35, 0))
    assert len(with_it["evaluations"]) == 7  # 0, 35 .. 175, and 200, the end
    assert with_it["state"].pop("evaluations")["best"] is not None
    assert without["state"].pop("evaluations")["best"] is None
    for part in ("state", "memory", "metrics"):
        assert differences(with_it[part], without[part]) == []


def test_it_is_at_fixed_steps_and_step_0_is_one(tmp_path: Path):
    run = train(tmp_path, steps=100, evaluate_every=30, evaluation_episodes=3, environment_options={})
    rows = run.evaluations()
    assert [row["step"] for row in rows] == [0, 30, 60, 90, 100]
    assert {row["episodes"] for row in rows} == {3}
    for row in rows:
        assert row["min_return"] <= row["mean_return"] <= row["max_return"]
        assert row["mean_length"] == 200
    untrained = train(
        tmp_path, small(learning_starts=10**6), steps=1, evaluation_episodes=3, environment_options={}
    ).evaluations()
    assert untrained[0] == rows[0] | {"seconds": untrained[0]["seconds"]}


def test_an_instance_is_evaluated_on_a_copy(tmp_path: Path):
    environment = gymnasium.make("Pendulum-v1", **BRIEF)
    run = train(tmp_path, environment=environment, steps=60)
    by_id = train(tmp_path, steps=60)
    assert differences(outcome(run)["memory"], outcome(by_id)["memory"]) == []


def test_an_object_that_cannot_be_copied_is_refused(tmp_path: Path):
    environment = gymnasium.make("Pendulum-v1", **BRIEF)
    environment.unwrapped.lock = threading.Lock()
    sentence = r"Pendulum-v1 cannot be copied for evaluations .*Or train without evaluations: evaluate_every=0\.$"
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, environment=environment)


def test_an_evaluation_whose_episodes_do_not_end_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(evaluation_module, "PATIENCE", 40)
    told: list[str] = []
    stepper = environments.make(Line, num_envs=2, kwargs={"length": 39})
    evaluate(still, stepper, 6, seed=0, tell=told.append)  # 117 steps, with ends between
    assert caplog.messages == []
    longer = environments.make(Line, num_envs=2, kwargs={"length": 50})
    for _ in range(2):
        evaluate(still, longer, 2, seed=0, tell=told.append)
    message, _ = caplog.messages
    assert message.startswith(
        "Line: no episode has ended for 100,000 steps, and an evaluation waits until its episodes end."
    )
    assert "evaluate_every=0" in message


LENGTHS = (3, 2, 4)  # of successive episodes


class Task(gymnasium.Env):
    """Its episodes are done, missed and without a word in turn; success before the last step is not the episode's."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, key: str = "is_success", silent: bool = False, first: int = 0) -> None:
        self.key, self.silent, self.episode = key, silent, first - 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None and seed >= 100:  # an evaluation's, which starts each episode by its seed
            self.episode = seed - 101
        self.episode, self.time = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over = self.time == LENGTHS[self.episode % 3]
        value = {0: np.float32(1.0), 1: False}.get(self.episode % 3)
        info = {} if over and (value is None or self.silent) else {self.key: value if over else True}
        return np.zeros(1, np.float32), 1.0, False, over, {} if self.silent else info


def stepper(mode: Any, key: str) -> VecEnv:
    factories = [partial(Task, key, first=first) for first in range(2)]
    if isinstance(mode, AutoresetMode):
        return VecEnv(GymVectorEngine(Whole(factories, autoreset_mode=mode), "Task"))
    return make(partial(Task, key), num_envs=2, vectorization=mode)


@pytest.mark.parametrize("key", ["is_success", "success"])
@pytest.mark.parametrize("mode", ["sync", "subprocess", *AutoresetMode])
def test_it_is_the_last_infos_word_whoever_steps(mode: Any, key: str):
    found: dict[int, list[float | None]] = {0: [], 1: []}
    steps = stepper(mode, key)
    steps.reset(None)
    for _ in range(20):
        for episode in steps.step(np.zeros((2, 1), np.float32))[1]:
            found[episode.env].append(episode.success)
    steps.close()
    later = isinstance(mode, AutoresetMode)  # where the second environment starts with another episode
    assert found[0][:4] == [1.0, 0.0, None, 1.0]
    assert found[1][:4] == ([0.0, None, 1.0, 0.0] if later else [1.0, 0.0, None, 1.0])


def test_where_nothing_says_so_nothing_is_told(tmp_path: Path):
    run = train(tmp_path, environment=partial(Task, silent=True), steps=60, evaluate_every=30)
    assert all("success_rate" not in row for row in [*run.evaluations(), *run.metrics()])
    assert all("train/success_rate" not in row for row in run.metrics())
    assert run.evaluate(3).success_rate is None
    assert "success" not in str(run.evaluate(3))


def test_it_is_in_every_table_and_a_killed_run_has_the_same(tmp_path: Path):
    options: dict[str, Any] = {"environment": Task, "steps": 90, "evaluate_every": 30, "evaluation_episodes": 4}
    whole = train(tmp_path / "a", **options)
    assert [row["success_rate"] for row in whole.evaluations()] == [pytest.approx(2 / 3)] * 4  # done, missed, -, done
    lines = [line["train/success_rate"] for line in whole.metrics()]
    assert lines
    assert all(0.4 < rate < 0.6 for rate in lines)  # of every two that say so, one
    result = whole.evaluate(2)
    assert (result.success_rate, str(result)) == (0.5, "2.5 ± 0.5 over 2 episodes, success 0.50")
    assert result.to_dict()["success_rate"] == 0.5
    with pytest.raises(CrashError):
        train(tmp_path / "b", **options, callbacks=[CrashAt(70)])
    killed = duetto.Run(tmp_path / "b" / whole.path.name, environment=Task).resume(progress=False)
    own = [name for name in whole.evaluations()[0] if name != "seconds"]
    assert [[row[name] for name in own] for row in killed.evaluations()] == [
        [row[name] for name in own] for row in whole.evaluations()
    ]
    assert [line["train/success_rate"] for line in killed.metrics()] == lines
