"""Making environments from ids, instances and factories; what is said when that fails."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import EzPickle
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordVideo, TimeLimit
from gymnasium.wrappers import vector as around
from scripted_environments import Counting, Ending, Scripted

import duetto
from duetto.environments import env_registry, make, make_eval
from duetto.errors import UsageError
from duetto.install_hint import install


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("HalfCheeta-v5", "no environment HalfCheeta-v5 ..* Did you mean: `HalfCheetah`"),
        ("cartpole-v1", "Did you mean: `CartPole`"),
        ("HalfCheetah-v9", "no environment HalfCheetah-v9 ..* `v4`, `v5`"),
        ("Pendulum-v0", "no environment Pendulum-v0 ..* use `Pendulum-v1`"),
        ("Foo/Bar-v1", "no environment Foo/Bar-v1"),
        ("not an id!", "no environment not an id!"),
        ("no_such_module:Foo-v0", "no_such_module:Foo-v0 cannot be made: ModuleNotFoundError: No module"),
    ],
)
def test_unknown_ids(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(name)


def test_wrong_constructor_arguments() -> None:
    with pytest.raises(UsageError, match=r"HalfCheetah-v5 cannot be made with \{'foo': 1\}.*unexpected keyword"):
        make("HalfCheetah-v5", kwargs={"foo": 1})


def test_wrong_options() -> None:
    with pytest.raises(UsageError, match="Did you mean 'subprocess'"):
        make("CartPole-v1", vectorization="subproces")
    with pytest.raises(UsageError, match="at least 1"):
        make("CartPole-v1", num_envs=0)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("AntBulletEnv-v0", "pybullet_envs_gymnasium", "pybullet"),
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("PongNoFrameskip-v4", "ale_py", "atari"),
        ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
    ],
)
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError) as caught:
        make(name)
    assert str(caught.value).endswith(f"Install: {install(extra)}")


@pytest.mark.parametrize(
    ("name", "extra", "entry"),
    [
        ("HalfCheetah-v5", "mujoco", "gymnasium.error.DependencyNotInstalled('mujoco is missing')"),
        ("LunarLander-v3", "box2d", "gymnasium.error.DependencyNotInstalled('Box2D is not installed')"),
        ("CarRacing-v3", "box2d", "ModuleNotFoundError('No module named Box2D')"),
    ],
)
def test_a_missing_dependency_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, extra: str, entry: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise eval(entry)

    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(UsageError, match=rf"{name} needs the .* Install: {re.escape(install(extra))}"):
        make(name)


def test_every_known_example_is_registered_where_its_package_is() -> None:
    for family in env_registry.FAMILIES:
        if any(importlib.util.find_spec(package) is None for package in family.imports):
            continue
        for example in family.examples:
            env_registry.register(example)
            if example == "LunarLanderContinuous-v3":
                continue
            assert env_registry.of_entry_point(gymnasium.spec(example).entry_point) is family


def test_a_module_whose_name_only_begins_like_a_family_s() -> None:
    """Its environments were wrapped as MiniGrid's, which ended in a traceback."""
    assert env_registry.of_entry_point("minigrid.envs:EmptyEnv") is env_registry.MINIGRID
    for own in ("minigridworld:Env", "minigrid_mine.envs:Env", "gymnasium.envs.mujoco2:Env", "gymnasium.envs:Env"):
        assert env_registry.of_entry_point(own) is None


def test_instances() -> None:
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


def test_factories() -> None:
    stepper = make(Counting, num_envs=3, kwargs={"bad": "reward"})
    assert stepper.num_envs == 3
    with pytest.raises(UsageError, match="factory <lambda> returned int"):
        make(lambda: 3)
    with pytest.raises(UsageError, match=r"factory Counting failed.*unexpected keyword"):
        make(Counting, kwargs={"foo": 1})


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_factory_that_returns_one_environment_again_is_refused(tmp_path: Path, wrapped: bool):
    """Evaluations would reset the episodes that are learned from; so would the other rows."""
    env = gymnasium.make("CartPole-v1")

    def same() -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(env, 9) if wrapped else env

    with pytest.raises(UsageError, match="factory same returned the same environment twice"):
        make(same, num_envs=2)
    with pytest.raises(UsageError, match="Make a new one at each call, or pass the environment itself"):
        duetto.train("ppo", same, steps=300, evaluate_every=0, runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())
    made = make(lambda: gymnasium.make("CartPole-v1"), num_envs=2)
    made.close()


def test_environments_of_one_batch_are_alike() -> None:
    ids = iter(["CartPole-v1", "Pendulum-v1"])
    with pytest.raises(UsageError, match="different spaces"):
        make(lambda: gymnasium.make(next(ids)), num_envs=2)


def test_separate_shares_nothing() -> None:
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
    scripted.lock = sys.stdout  # no copy of that exists
    with pytest.raises(UsageError, match=r"Scripted cannot be copied.*a function"):
        make_eval(scripted)


class Constructed(Counting, EzPickle):
    """Pickled by its constructor's arguments, as Gymnasium's MuJoCo environments are."""

    def __init__(self) -> None:
        Counting.__init__(self)
        EzPickle.__init__(self)


@pytest.mark.parametrize("kind", [Counting, Constructed])
def test_a_copy_has_what_was_set_on_the_object(kind: Any) -> None:
    env = TimeLimit(kind(), 5)
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


def test_a_copy_in_mujoco_is_of_its_world() -> None:
    pytest.importorskip("mujoco")
    env = gymnasium.make("InvertedPendulum-v5")
    env.unwrapped.model.opt.gravity[2] = -1.0
    copied = make_eval(env).engine.envs[0].unwrapped
    assert copied.model.opt.gravity[2] == -1.0
    copied.model.opt.gravity[2] = -2.0
    assert env.unwrapped.model.opt.gravity[2] == -1.0


def test_a_world_of_pybullet_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    bullet = types.ModuleType("pybullet")
    monkeypatch.setitem(sys.modules, "pybullet", bullet)
    monkeypatch.setattr(sys.modules[Counting.__module__], "p", bullet, raising=False)
    with pytest.raises(UsageError, match=r"Counting cannot be copied .*PyBullet's worlds cannot be copied"):
        make_eval(Counting())


def test_a_copy_does_not_write_over_the_objects_videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moviepy", types.ModuleType("moviepy"))
    inner = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    copied = make_eval(TimeLimit(RecordVideo(inner, str(tmp_path / "videos"), episode_trigger=bool), 7))
    assert "RecordVideo" not in str(copied.engine.envs[0])
    assert "TimeLimit" in str(copied.engine.envs[0])


def test_of_another_vector_environment_no_single_one_is_made() -> None:
    wrapped = around.ClipReward(SyncVectorEnv([Counting] * 2), -1, 1)
    for vector in (wrapped, gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")):
        with pytest.raises(UsageError, match=r"which cannot make a single environment .*\. Pass an id"):
            make_eval(vector)


def test_importing_the_package_imports_no_family_and_no_framework() -> None:
    heavy = {"torch", "jax", "mujoco", "pybullet"}
    code = f"import sys, duetto.environments; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pybullet_is_quiet() -> None:
    pytest.importorskip("pybullet_envs_gymnasium")
    code = "from duetto.environments import make; s = make('InvertedPendulumBulletEnv-v0'); s.reset(0); s.close()"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == ""


def test_mujoco_is_quiet_and_writes_no_log(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    code = "from duetto.environments import make; make('HalfCheetah-v5').close()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", [])


class Dispatch(gymnasium.Env):
    """What it does stands in a table of functions that act on it, or on a part of it."""

    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (1,)), gymnasium.spaces.Discrete(2)

    def __init__(self, part: bool = False) -> None:
        self.world = SimpleNamespace(at=0)
        world = self.world
        self.moves: Any = {0: lambda: self.move(-1), 1: [lambda: self.move(1)]}
        if part:
            self.moves = [functools.partial(lambda by: setattr(world, "at", world.at + by), 1)]

    def move(self, by: int) -> None:
        self.world.at += by

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_functions_in_an_object_act_on_the_copy_in_a_copy():
    """Evaluations stepped the environment that was trained in."""
    for part in (False, True):
        env = Dispatch(part)
        copied = make_eval(env).engine.envs[0].unwrapped
        copied.moves[0]() if part else copied.moves[1][0]()
        assert (copied.world.at, env.world.at) == (1, 0)
