"""A run saved in the middle of an episode goes on bit for bit in new environments."""

from __future__ import annotations

import dataclasses
import gc
import random
from collections import deque
from functools import partial
from types import MethodType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from resuming import assert_equal, check_resume, plain, record
from scripted_environments import Opaque, OwnState, Unsure, Walk

from duetto.environments import Stepper, make, values
from duetto.environments import state as states
from duetto.environments.kept import Kept
from duetto.errors import CheckpointError, UsageError

PYBULLET = ["AntBulletEnv-v0", "HopperBulletEnv-v0", "HalfCheetahBulletEnv-v0", "Walker2DBulletEnv-v0"]


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Walker2d-v5"])
def test_mujoco(name: str) -> None:
    pytest.importorskip("mujoco")
    check_resume(name)


@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0", "CartPole-v1", "Acrobot-v1"])
def test_classic_control(name: str) -> None:
    check_resume(name)


@pytest.mark.parametrize("name", PYBULLET)
def test_pybullet(name: str) -> None:
    pytest.importorskip("pybullet_envs_gymnasium")
    check_resume(name)


def test_subprocesses() -> None:
    check_resume("Hopper-v5", 200, vectorization="subprocess")


@pytest.mark.parametrize("environment", [Walk, OwnState])
def test_environments_of_a_user(environment: Any) -> None:
    check_resume(environment, 200)


class InPlace(gymnasium.Env[np.ndarray, Any]):
    """Hands over the very array that it goes on to change, and keeps the one that it is given."""

    observation_space = gymnasium.spaces.Box(-99, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.at = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at[:] = 0
        return self.at.copy(), {}

    def step(self, action: np.ndarray) -> Any:
        self.at += 1 + action
        return self.at.copy(), 0.0, False, False, {}

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def test_a_state_that_an_environment_hands_over_stays_what_it_was() -> None:
    """While the environment goes on, and while one goes on that was given it: it may be loaded again."""
    first = make(InPlace)
    first.reset(0)
    record(first, np.random.default_rng(0), 3)
    saved = first.state_dict()
    others = [make(InPlace), make(InPlace)]
    runs = [record(first, np.random.default_rng(1), 5)]
    for other in others:
        other.load_state_dict(saved)
        runs.append(record(other, np.random.default_rng(1), 5))
    assert_equal(runs[1], runs[0])
    assert_equal(runs[2], runs[0])


@pytest.mark.parametrize("mode", [*AutoresetMode])
def test_a_vector_environment_of_a_user(mode: AutoresetMode) -> None:
    def fresh() -> Stepper:
        return make(SyncVectorEnv([Walk, Walk], autoreset_mode=mode))

    for steps in range(20):  # some of these end just where an episode did
        first, second = fresh(), fresh()
        first.reset(0)
        random = np.random.default_rng(1)
        record(first, random, steps)
        second.load_state_dict(first.state_dict())
        assert second.resumed_exactly
        other = np.random.default_rng(1)
        other.bit_generator.state = random.bit_generator.state
        assert np.array_equal(first.obs, second.obs)
        assert np.array_equal(first.starts, second.starts)
        assert_equal(record(first, random, 30), record(second, other, 30))


@pytest.mark.parametrize("environment", [Opaque, "LunarLander-v3"])
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # SWIG in Box2D
def test_what_cannot_be_saved_begins_new_episodes(environment: Any) -> None:
    if isinstance(environment, str):
        pytest.importorskip("Box2D")
    first = make(environment)
    first.reset(0)
    assert first.state_dict()["environments"] is None
    record(first, np.random.default_rng(0), 5)
    state = first.state_dict()
    plain(state)
    resumed = [make(environment) for _ in range(2)]
    for stepper in resumed:
        stepper.load_state_dict(state)
        assert not stepper.resumed_exactly
        assert stepper.starts.all()
        assert stepper.steps == 5
    assert_equal(*(record(stepper, np.random.default_rng(0), 30) for stepper in resumed))


@pytest.mark.parametrize("environment", [Unsure, lambda: SyncVectorEnv([OwnState, Unsure])])
def test_an_environment_that_says_it_is_elsewhere_begins_new_episodes(environment: Any) -> None:
    def fresh() -> Stepper:
        return make(environment() if environment is not Unsure else environment)

    saving, resumed, begun = fresh(), fresh(), fresh()
    saving.reset(0)
    record(saving, np.random.default_rng(0), 5)
    state = saving.state_dict()
    resumed.load_state_dict(state)
    begun.load_state_dict(state | {"environments": None})
    assert not resumed.resumed_exactly
    assert resumed.starts.all()
    assert_equal(*(record(stepper, np.random.default_rng(0), 30) for stepper in (resumed, begun)))


def test_wrappers_with_hidden_state_are_not_savable() -> None:
    simple = gymnasium.wrappers.TimeLimit(Walk(), 5)
    normalising = gymnasium.wrappers.NormalizeObservation(Walk())
    for env, savable in ((simple, True), (normalising, False)):
        stepper = make(env)
        stepper.reset(0)
        assert (stepper.state_dict()["environments"] is not None) is savable


def test_foreign_states_are_refused() -> None:
    one, two = make("CartPole-v1"), make("CartPole-v1", num_envs=2)
    with pytest.raises(UsageError, match="before the first reset"):
        one.state_dict()
    one.reset(0)
    with pytest.raises(CheckpointError, match="has 1 environments, this run 2"):
        two.load_state_dict(one.state_dict())
    with pytest.raises(CheckpointError, match=r"CartPoleEnv.*PendulumEnv"):
        make("Pendulum-v1").load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2.5,
        "text",
        float("inf"),
        np.float32(0.1),
        (1, (2.0, "x")),
        [np.arange(3.0), {"a": (1,)}],
        {3: "int key", "s": [1]},
        deque([np.ones(2)], maxlen=4),
    ],
)
def test_values_come_back_with_their_types(value: Any) -> None:
    encoded = values.encode(value, values.Seen())
    plain(encoded)
    decoded = values.decode(encoded)
    assert type(decoded) is type(value)
    assert repr(decoded) == repr(value)
    assert getattr(decoded, "maxlen", None) == getattr(value, "maxlen", None)


def test_two_names_for_one_object_are_refused() -> None:
    array, shared = np.zeros(4), [1]
    older = np.random.RandomState(np.random.PCG64(1))  # whose state another one would not take
    the_process = [np.random.mtrand._rand, random._inst]  # and is saved as such
    for value in ([array, array[1:]], [shared, shared], object(), np.array([None]), {1, 2}, older, *the_process):
        with pytest.raises(values.NotSimpleError):
            values.encode(value, values.Seen())


@pytest.mark.parametrize("kind", ["RandomState", "Random"])
def test_what_should_be_a_generator_and_is_none_is_refused(kind: str) -> None:
    with pytest.raises(CheckpointError, match="should be a random generator's state is none"):
        values.decode({"kind": kind, "state": 3})


class Holding(gymnasium.Env):
    """It holds another environment, and is no wrapper."""

    def __init__(self) -> None:
        self.env = gymnasium.make("Pendulum-v1")
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.turn = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.turn += 1
        return self.env.step(action)


def test_an_environment_that_holds_another_one_comes_back_with_it():
    check_resume(Holding, steps=450)


class Says(Walk):
    """What its state_dict() is, is said from outside."""

    given: Any = None

    def state_dict(self) -> Any:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def load_state_dict(self, state: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (RuntimeError("no power"), "Says.state_dict() raised RuntimeError: no power"),
        ([1], "Says.state_dict() is a list of 1, and no dict"),
        ({"a": {"b": np.float64(1)}}, "Says.state_dict() has a value of type float64 at a/b, where"),
        ({"a": (1, 2)}, "Says.state_dict() has a value of type tuple at a, where"),
        ({"a": {3: 1}}, "Says.state_dict() has the key 3, which is no text, at a"),
        ({"a": [1, {"b": object()}]}, "Says.state_dict() has a value of type object at a/1/b, where"),
        ({"a": np.array([1], np.longdouble)}, "Says.state_dict() has an array of float128 at a, where"),
        ({"a": "\ud800"}, "Says.state_dict() has a value of type str at a, where"),
        ({"a": [1.0, None, "b"], "c": {"d": np.arange(3)}}, ""),
    ],
)
def test_a_state_of_its_own_that_no_checkpoint_holds_is_none_and_what_is_wrong_is_said(given: Any, said: str):
    """A run ended in a TypeError at its first checkpoint."""
    env = Says()
    env.given = given
    assert states.obstacle(env).startswith(said)
    assert bool(states.obstacle(env)) == bool(said)
    assert (states.save(env) is None) == bool(said)


@pytest.mark.parametrize("value", [np.longdouble(1), np.zeros(2, ">f4"), np.zeros(2, np.longdouble), "\ud800"])
def test_attributes_that_no_checkpoint_holds_are_not_saved(value: Any):
    env: Any = Walk()
    env.strange = value
    assert "Walk.strange is" in states.obstacle(env)


def test_functions_of_every_kind_are_told_apart_by_name():
    """A method may be of something that has no name, as a partial function."""
    rules = [Walk, Opaque, len, max, Walk.step, Walk().reset, MethodType(partial(print), Walk()), lambda: 1, lambda: 2]
    saved: list[Any] = []
    for rule in rules:
        env: Any = Walk()
        env.rule = rule
        saved.append(states.save(env))
        again: Any = Walk()
        again.reset(seed=0)
        again.rule = rule
        assert states.load(again, saved[-1])
    for rule, other in zip(rules, [*rules[1:], rules[0]], strict=True):
        env = Walk()
        env.reset(seed=0)
        env.rule = other
        assert not states.load(env, saved[rules.index(rule)])


def test_a_models_whole_numbers_are_not_taken_from_a_state():
    """MuJoCo follows them without a look: one more in `jnt_qposadr` ended the process at the next step."""
    env: Any = gymnasium.make("InvertedPendulum-v5").unwrapped
    states.remember(env)
    env.reset(seed=0)
    model = env.model
    before, mass = model.jnt_qposadr.copy(), model.body_mass.copy()
    model.body_mass[1] += 1.0
    saved: Any = states.save(env)
    model.body_mass[:] = mass
    assert states.load(env, saved)
    assert model.body_mass[1] == mass[1] + 1.0
    saved["0"]["mjmodel"]["model"]["changed"]["jnt_qposadr"] = before + 1
    assert not states.load(env, saved)
    assert np.array_equal(model.jnt_qposadr, before)


def test_environments_that_are_equal_or_have_no_hash_are_told_apart():
    @dataclasses.dataclass
    class Plain(Walk):
        size: int = 3

        def __post_init__(self) -> None:
            Walk.__init__(self)

    stepper = make(Plain, num_envs=2)
    stepper.reset(0)
    assert stepper.state_dict()["environments"] is not None
    one, other = Plain(), Plain()
    kept: Kept[int] = Kept()
    kept.set(one, 1)
    assert (kept.get(one), kept.get(other)) == (1, None)
    del one
    gc.collect()
    assert not kept._values


def test_one_array_at_several_places_of_a_sequence_stays_one():
    """As a stack of frames begins: with its first frame as often as it is deep."""
    frame = np.arange(3.0)
    value = deque([frame, np.ones(3), frame, frame], maxlen=4)
    found = values.decode(values.encode(value, values.Seen()))
    assert (type(found), found.maxlen) == (deque, 4)
    assert found[0] is found[2] is found[3]
    np.testing.assert_array_equal(found, value)
    broken = {"kind": "list", "items": {"0": {"kind": "again", "place": 0}}}
    with pytest.raises(CheckpointError, match="which is none before it"):
        values.decode(broken)
    with pytest.raises(values.NotSimpleError, match="two names"):  # of two sequences
        values.encode([[frame], [frame]], values.Seen())


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_stack_of_frames_comes_back_whenever_it_is_saved(steps: int):
    def stacked() -> Any:
        return gymnasium.wrappers.FrameStackObservation(gymnasium.make("Pendulum-v1"), 4)

    stepper, other, action = make(stacked), make(stacked), np.zeros((1, 1), np.float32)
    stepper.reset(3)
    for _ in range(steps):
        stepper.step(action)
    saved = stepper.state_dict()
    assert saved["environments"] is not None
    other.reset(9)
    other.load_state_dict(saved)
    assert other.resumed_exactly
    for _ in range(4):
        np.testing.assert_array_equal(stepper.step(action)[0].next_obs, other.step(action)[0].next_obs)
