"""Making environments from ids, instances and factories, and the errors if that fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from gymnasium.wrappers import vector as vector_wrappers
from scripted_environments import Counting, Ending, Scripted

import duetto
from duetto.environments import make, make_eval
from duetto.errors import UsageError
from duetto.install_hint import install


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("HalfCheeta-v5", "no environment HalfCheeta-v5. Did you mean HalfCheetah-v5"),
        ("cartpole-v1", "Did you mean CartPole-v1"),
        ("HalfCheetah-v9", "no environment HalfCheetah-v9. Did you mean HalfCheetah-v5"),
        ("Pendulum-v0", "no environment Pendulum-v0. Did you mean Pendulum-v1"),
        ("Foo/Bar-v1", "no environment Foo/Bar-v1"),
        ("not an id!", "no environment not an id!"),
        ("no_such_module:Foo-v0", "no_such_module:Foo-v0 cannot be made: ModuleNotFoundError: No module"),
    ],
)
def test_unknown_environment_ids_are_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(name)


@pytest.mark.parametrize(
    "name", ["HalfCheetah-v5", "InvertedPendulumBulletEnv-v0", "minigrid:MiniGrid-Empty-5x5-v0", "BabyAI-GoToObj-v0"]
)
def test_make_prints_nothing_and_writes_no_files(tmp_path: Path, name: str) -> None:
    pytest.importorskip({"H": "mujoco", "I": "pybullet_envs_gymnasium"}.get(name[0], "minigrid"))
    code = f"from duetto.environments import make; envs = make({name!r}); envs.reset(0); envs.close()"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", [])


def test_wrong_constructor_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match=r"HalfCheetah-v5 cannot be made with \{'foo': 1\}.*unexpected keyword"):
        make("HalfCheetah-v5", kwargs={"foo": 1})


def test_wrong_make_options_are_refused() -> None:
    with pytest.raises(UsageError, match="Did you mean 'subprocess'"):
        make("CartPole-v1", vectorization="subproces")
    with pytest.raises(UsageError, match="at least 1"):
        make("CartPole-v1", num_envs=0)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("AntBulletEnv-v0", "pybullet_envs_gymnasium", "pybullet"),
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
    ],
)
def test_missing_package_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError) as caught:
        make(name)
    assert str(caught.value).endswith(f"Install: {install(extra)}")


def test_missing_dependency_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled("mujoco is missing")

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(UsageError, match=rf"HalfCheetah-v5 needs the .* Install: {re.escape(install('mujoco'))}"):
        make("HalfCheetah-v5")


def test_make_from_environment_instances() -> None:
    env = Counting()
    stepper = make(env)
    assert stepper.name == "Counting"
    assert stepper.num_envs == 1
    with pytest.raises(UsageError, match="Pass an id, or a factory"):
        make(env, num_envs=2)
    with pytest.raises(UsageError, match="come too late"):
        make(env, render_mode="rgb_array")
    vector = SyncVectorEnv([Counting] * 3)
    assert make(vector).num_envs == 3
    with pytest.raises(UsageError, match="with 3 environment"):
        make(vector, num_envs=2)
    with pytest.raises(UsageError, match="come too late"):
        make(vector, vectorization="subprocess")
    with pytest.raises(UsageError, match="is no environment"):
        make(7)


def test_make_from_factories() -> None:
    stepper = make(Counting, num_envs=3, kwargs={"bad": "reward"})
    assert stepper.num_envs == 3
    with pytest.raises(UsageError, match="factory <lambda> returned int"):
        make(lambda: 3)
    with pytest.raises(UsageError, match=r"factory Counting failed.*unexpected keyword"):
        make(Counting, kwargs={"foo": 1})


def test_factory_returning_the_same_environment_is_refused(tmp_path: Path):
    """Otherwise evaluations and other rows would reset the training episodes."""
    env = gymnasium.make("CartPole-v1")

    def same() -> gymnasium.Env:
        return TimeLimit(env, 9)

    with pytest.raises(UsageError, match="factory same returned the same environment twice"):
        make(same, num_envs=2)
    with pytest.raises(UsageError, match="Make a new one at each call, or pass the environment itself"):
        duetto.train("ppo", same, steps=300, evaluate_every=0, runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_make_eval_shares_nothing_with_the_original() -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=7)
    other = make_eval(env, render_mode="rgb_array")
    inner = other.engine.envs[0]
    assert inner.unwrapped is not env.unwrapped
    assert inner.render_mode == "rgb_array"
    assert inner.spec.max_episode_steps == 7
    scripted = Scripted([Ending(3, True, False)])
    copied = make_eval(scripted)
    copied.reset(0)
    copied.step(np.zeros((1, 1)))
    assert scripted.log == []
    assert make_eval("CartPole-v1", num_envs=2).num_envs == 2
    assert make_eval(SyncVectorEnv([Counting] * 3)).num_envs == 1
    scripted.lock = sys.stdout  # cannot be copied
    with pytest.raises(UsageError, match=r"Scripted cannot be copied.*a function"):
        make_eval(scripted)


def test_make_eval_copies_attributes_set_on_the_instance() -> None:
    env = TimeLimit(Counting(), 5)
    env.unwrapped.gain, env.unwrapped.held = 5.0, [1]
    env.reset(seed=0)
    several = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    several.set_attr("gravity", 0.0)
    stepper = make_eval(env, num_envs=2)
    for copied in stepper.engine.envs:
        assert copied.unwrapped.gain == 5.0
        assert copied.unwrapped.held == [1]
        assert copied.unwrapped.held is not env.unwrapped.held
        assert copied.unwrapped is not env.unwrapped
    assert make_eval(several).engine.envs[0].unwrapped.gravity == 0.0


def test_make_eval_copies_the_mujoco_model() -> None:
    pytest.importorskip("mujoco")
    env = gymnasium.make("InvertedPendulum-v5")
    env.unwrapped.model.opt.gravity[2] = -1.0
    copied = make_eval(env).engine.envs[0].unwrapped
    assert copied.model.opt.gravity[2] == -1.0
    copied.model.opt.gravity[2] = -2.0
    assert env.unwrapped.model.opt.gravity[2] == -1.0


def test_make_eval_of_other_vector_environments_is_refused() -> None:
    wrapped = vector_wrappers.ClipReward(SyncVectorEnv([Counting] * 2), -1, 1)
    for vector in (wrapped, gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")):
        with pytest.raises(UsageError, match=r"which cannot make a single environment .*\. Pass an id"):
            make_eval(vector)


class Dispatch(gymnasium.Env):
    """Environment with a table of functions that act on it."""

    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (1,)), gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.at = 0
        self.moves: Any = {0: lambda: self.move(-1), 1: [lambda: self.move(1)]}

    def move(self, by: int) -> None:
        self.at += by


def test_functions_stored_in_a_copy_act_on_the_copy():
    """Otherwise evaluations would step the training environment."""
    env = Dispatch()
    copied = make_eval(env).engine.envs[0].unwrapped
    copied.moves[1][0]()
    assert (copied.at, env.at) == (1, 0)
