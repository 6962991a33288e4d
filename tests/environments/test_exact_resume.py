"""A run saved in the middle of an episode continues bit for bit in new environments."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import hidden_environments as hidden
import numpy as np
import pytest
from fake_run import same
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from resume_checks import assert_equal, assert_serializable, check_continues, check_resume, record
from scripted_environments import InexactOwnState, Opaque, OwnState, Walk

from duetto.environments import VecEnv, check, exact_resume, make, obstacles
from duetto.errors import CheckpointError, UsageError


@pytest.mark.parametrize(
    ("environment", "vectorization"),
    [(Walk, "sync"), (OwnState, "sync"), (Opaque, "subprocess")],
)
def test_custom_environments_resume_exactly(environment: Any, vectorization: Any) -> None:
    check_resume(environment, 200, vectorization=vectorization)


@pytest.mark.parametrize("mode", [*AutoresetMode])
def test_custom_vector_environment_resumes_exactly(mode: AutoresetMode) -> None:
    def fresh() -> VecEnv:
        return make(SyncVectorEnv([Walk, Walk], autoreset_mode=mode))

    for steps in range(20):  # some of these end with an episode
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


def test_load_state_dict_returning_false_starts_a_new_episode() -> None:
    """The other environments continue their episodes."""

    def fresh() -> VecEnv:
        return make(SyncVectorEnv([OwnState, InexactOwnState, Walk]))

    saving, resumed, begun = fresh(), fresh(), fresh()
    saving.reset(0)
    record(saving, np.random.default_rng(0), 5)
    state = saving.state_dict()
    resumed.load_state_dict(state)
    begun.load_state_dict(state | {"environments": None})
    assert resumed.restored.tolist() == [True, False, True]
    assert resumed.not_restored == ["its load_state_dict() returned False"]
    assert not begun.restored.any()
    assert resumed.starts[1]
    assert np.array_equal(resumed.obs[1], begun.obs[1])
    rows = [stepper.step(stepper.sample_actions(np.random.default_rng(1)))[0] for stepper in (saving, resumed, begun)]
    same = [np.array_equal(rows[0].next_obs[env], rows[1].next_obs[env]) for env in range(3)]
    assert same == [True, False, True]
    assert np.array_equal(rows[1].next_obs[1], rows[2].next_obs[1])


def test_state_of_another_run_is_refused() -> None:
    one, two = make("CartPole-v1"), make("CartPole-v1", num_envs=2)
    with pytest.raises(UsageError, match="before the first reset"):
        one.state_dict()
    one.reset(0)
    with pytest.raises(CheckpointError, match="has 1 environments, this run 2"):
        two.load_state_dict(one.state_dict())
    with pytest.raises(CheckpointError, match="does not belong to this run"):
        make("Pendulum-v1").load_state_dict(one.state_dict())


class Says(Walk):
    """Returns `given` in state_dict(), or raises it."""

    given: Any = None

    def state_dict(self) -> Any:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def load_state_dict(self, state: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (RuntimeError("no power"), "Says.state_dict() cannot be saved (RuntimeError: no power)"),
        ({"a": {3: 1}}, "Says.state_dict() cannot be saved (TypeError: a: the key 3 is not text"),
    ],
)
def test_unsavable_state_dict_is_reported_as_an_obstacle(given: Any, said: str):
    """Otherwise the first checkpoint would raise a TypeError."""
    env = Says()
    env.given = given
    stepper = make(env)
    stepper.reset(0)
    saved = stepper.state_dict()["environments"]
    assert_serializable(saved)
    why = obstacles(saved)
    assert why[0].startswith(said)


# ------------------------------------------------------------------------------------------- generators, hidden state
GENERATORS = [
    hidden.ActionSpaceState,
    hidden.ObservationSpaceState,
    hidden.NumpyGlobalState,
    hidden.RandomModuleState,
    hidden.LegacyGeneratorState,
]


@pytest.mark.parametrize("environment", GENERATORS)
def test_every_kind_of_random_generator_is_restored(environment: Any) -> None:
    first, second = (make(environment) for _ in range(2))
    second.reset(77)
    first.reset(3)
    actions = np.random.default_rng(0)
    record(first, actions, 120)  # into the third episode
    record(second, np.random.default_rng(1), 17)
    _, expected = check_continues(first, second, actions, 120)
    assert len({float(arrays[3][0]) for arrays, _ in expected}) > 3  # rewards differ


@pytest.mark.parametrize("environment", [hidden.ModuleState, hidden.ModuleStateAtResets])
def test_state_outliving_an_episode_is_detected(environment: Any) -> None:
    first, second = make(environment), make(environment)
    first.reset(3)
    record(first, np.random.default_rng(0), 120)
    second.load_state_dict(first.state_dict())
    assert second.not_restored == [exact_resume.ELSEWHERE]
    assert second.starts.all()
    findings = check.Findings()
    check.check_resume(findings, make(environment), make(environment), 400)
    assert "state that outlives an episode" in findings[-1].sentence


# ------------------------------------------------------------------------------------------- set_attr, custom states
class Endless(Walk):
    """Walk without episode ends."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class SetReward(Endless):
    """Walk whose reward is the sum of `pay`."""

    def __init__(self) -> None:
        super().__init__()
        self.pay: Any = (1.0, 0)

    def step(self, action: np.ndarray) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float(sum(self.pay)), *rest


def test_set_attr_is_replayed_at_its_step() -> None:
    first = make(SetReward)
    first.reset(0)
    paid, second = [], first
    for step in range(9):
        if step in (3, 6):
            first.set_attr("pay", (step, 1) if step == 3 else np.array([step, 1.0]))
        paid += record(first, np.random.default_rng(step), 1)
        if step in (2, 5, 8):
            second = make(SetReward)
            second.load_state_dict(first.state_dict())
            assert second.resumed_exactly, second.not_restored
    assert [row[3].item() for row, _ in paid] == [1.0] * 3 + [4.0] * 3 + [7.0] * 3
    assert_equal(*(record(stepper, np.random.default_rng(9), 3) for stepper in (first, second)))


@pytest.mark.parametrize("value", [1.5, math.inf, "a", None, np.float32(2), [1, [2]], {"a": np.zeros(2)}, (1, {2: 3})])
def test_attribute_values_are_restored(value: Any) -> None:
    assert same(exact_resume.decode(exact_resume.encode(value)), value)


class SavesItself(SetReward):
    """An environment with a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("kind", [SetReward, SavesItself])
def test_attribute_that_cannot_be_saved_is_reported(kind: type[SetReward]) -> None:
    env = make(kind)
    env.reset(0)
    assert not obstacles(env.state_dict()["environments"])
    env.set_attr("pay", object())
    assert obstacles(env.state_dict()["environments"]) == ["its pay was set to a value that no checkpoint holds"]


@pytest.mark.parametrize("kind", [SetReward, SavesItself])
def test_only_the_newest_value_of_an_attribute_is_saved(kind: type[SetReward]) -> None:
    env = make(kind)
    env.reset(0)
    for value in range(5):
        env.set_attr("pay", (value, 0))
    assert str(env.state_dict()).count("'name': 'pay'") == 1


class EndlessOwnState(Endless, OwnState):
    """An environment with a state of its own and without episode ends."""


def test_time_limit_around_a_custom_state_is_restored() -> None:
    """Twice, because an environment may modify the state that it loads."""
    first, second = make(lambda: TimeLimit(EndlessOwnState(), 9)), make(lambda: TimeLimit(EndlessOwnState(), 9))
    first.reset(0)
    record(first, np.random.default_rng(0), 14)
    saved = first.state_dict()
    expected = record(first, np.random.default_rng(1), 14)
    for _ in range(2):
        second.load_state_dict(saved)
        assert second.resumed_exactly, second.not_restored
        assert_equal(expected, record(second, np.random.default_rng(1), 14))


# ------------------------------------------------------------------------------------- episodes that are not replayed
class ResetsOnly(Walk):
    metadata: ClassVar[dict[str, Any]] = {"resets_only": True}


@pytest.mark.parametrize("limit", ["steps", "seconds", "metadata"])
def test_episode_that_is_not_replayed_restarts_without_a_step(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (make(ResetsOnly if limit == "metadata" else Endless) for _ in range(2))
    if limit == "steps":
        monkeypatch.setattr(exact_resume, "LONGEST", 9)
    if limit == "seconds":
        monkeypatch.setattr(exact_resume, "PATIENCE", 0.0)
    first.reset(0)
    record(first, np.random.default_rng(0), 10)
    state = first.state_dict()
    assert_serializable(state)
    monkeypatch.setattr(Walk, "step", None)
    second.load_state_dict(state)
    said = {"steps": "more than 9 steps", "seconds": "more than 0 s", "metadata": "resets_only"}[limit]
    [why] = second.not_restored
    assert said in why
    assert obstacles(state["environments"]) == [why]
    assert second.starts.all()


@pytest.mark.parametrize(
    ("replayed", "said"),
    [("raises", "repeating its episode raised RuntimeError: no power"), ("ends", exact_resume.ELSEWHERE)],
)
def test_failing_replay_starts_a_new_episode(replayed: str, said: str) -> None:
    class Frail(Endless):
        broken = False

        def step(self, action: np.ndarray) -> Any:
            obs, reward, *rest = super().step(action)
            if Frail.broken and replayed == "raises":
                raise RuntimeError("no power")
            return (obs, reward, True, *rest[1:]) if Frail.broken else (obs, reward, *rest)

    first, second = make(Frail), make(Frail)
    first.reset(0)
    record(first, np.random.default_rng(0), 3)
    state = first.state_dict()
    Frail.broken = True
    second.load_state_dict(state)
    assert second.not_restored == [said]
