"""A run saved in the middle of an episode continues bit for bit in new environments."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import hidden_environments as hidden
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from resuming import assert_equal, check_continues, check_resume, plain, record
from scripted_environments import Opaque, OwnState, Unsure, Walk

from duetto.environments import VecEnv, check, exact_resume, make, obstacles
from duetto.errors import CheckpointError, UsageError


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("environment", [Walk, OwnState, Opaque])
def test_environments_of_a_user(environment: Any, vectorization: Any) -> None:
    check_resume(environment, 200, vectorization=vectorization)


class InPlace(gymnasium.Env[np.ndarray, Any]):
    """Hands over the very array that it continues to change, and keeps the one that it is given."""

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
    """While the environment continues, and while one continues that was given it: it may be loaded again."""
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
    def fresh() -> VecEnv:
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


def test_an_environment_that_says_it_is_elsewhere_begins_a_new_episode() -> None:
    """Only that one; the others continue."""

    def fresh() -> VecEnv:
        return make(SyncVectorEnv([OwnState, Unsure, Walk]))

    saving, resumed, begun = fresh(), fresh(), fresh()
    saving.reset(0)
    record(saving, np.random.default_rng(0), 5)
    state = saving.state_dict()
    resumed.load_state_dict(state)
    begun.load_state_dict(state | {"environments": None})
    assert resumed.restored.tolist() == [True, False, True]
    assert resumed.not_restored == ["its load_state_dict() said so"]
    assert not begun.restored.any()
    assert resumed.starts[1]
    assert np.array_equal(resumed.obs[1], begun.obs[1])
    rows = [stepper.step(stepper.sample_actions(np.random.default_rng(1)))[0] for stepper in (saving, resumed, begun)]
    same = [np.array_equal(rows[0].next_obs[env], rows[1].next_obs[env]) for env in range(3)]
    assert same == [True, False, True]
    assert np.array_equal(rows[1].next_obs[1], rows[2].next_obs[1])


class Shortened(gymnasium.Env[np.ndarray, Any]):
    """Its observations and rewards are always the same; only its end differs."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    length = 9

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, self.steps == self.length, False, {}


def test_an_episode_that_ends_when_it_is_repeated_is_not_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(Shortened), make(Shortened)
    first.reset(0)
    record(first, np.random.default_rng(0), 3)
    saved = first.state_dict()
    monkeypatch.setattr(Shortened, "length", 2)
    second.load_state_dict(saved)
    assert second.not_restored == [exact_resume.ELSEWHERE]


def test_foreign_states_are_refused() -> None:
    one, two = make("CartPole-v1"), make("CartPole-v1", num_envs=2)
    with pytest.raises(UsageError, match="before the first reset"):
        one.state_dict()
    one.reset(0)
    with pytest.raises(CheckpointError, match="has 1 environments, this run 2"):
        two.load_state_dict(one.state_dict())
    with pytest.raises(CheckpointError, match="not one of this run"):
        make("Pendulum-v1").load_state_dict(one.state_dict())


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
        (RuntimeError("no power"), "Says.state_dict() cannot be saved (RuntimeError: no power)"),
        ({"a": {3: 1}}, "Says.state_dict() cannot be saved (TypeError: a: the key 3 is not text"),
        ({"a": [1.0, None, "b"], "c": {"d": np.arange(3)}}, ""),
    ],
)
def test_a_state_of_its_own_that_no_checkpoint_holds_is_none_and_what_is_wrong_is_said(given: Any, said: str):
    """A run ended in a TypeError at its first checkpoint."""
    env = Says()
    env.given = given
    stepper = make(env)
    stepper.reset(0)
    saved = stepper.state_dict()["environments"]
    plain(saved)
    why = obstacles(saved)
    assert [one.startswith(said) for one in why] == [True] * bool(said)


# ------------------------------------------------------------------------------------------- generators, hidden state
GENERATORS = [
    hidden.OfActionSpace,
    hidden.OfObservationSpace,
    hidden.OfNumpy,
    hidden.OfRandom,
    hidden.OfOlderGenerators,
]
OUTLIVES = [
    hidden.Plain,
    hidden.OfModule,
    hidden.OfResets,
    lambda: gymnasium.wrappers.NormalizeObservation(Walk()),
]


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("environment", GENERATORS)
@pytest.mark.parametrize("before", [20, 120])  # in the first episode, and in the third
def test_generators_of_every_kind_come_back(environment: Any, before: int, vectorization: Any) -> None:
    first, second = (make(environment, vectorization=vectorization) for _ in range(2))
    second.reset(77)
    first.reset(3)
    actions = np.random.default_rng(0)
    record(first, actions, before)
    record(second, np.random.default_rng(1), 17)
    _, expected = check_continues(first, second, actions, 120)
    assert len({float(arrays[3][0]) for arrays, _ in expected}) > 3  # the rewards tell numbers apart
    first.close()
    second.close()


@pytest.mark.parametrize("environment", OUTLIVES)
def test_state_that_outlives_an_episode_begins_a_new_one_and_the_checker_finds_it(environment: Any) -> None:
    first, second = make(environment), make(environment)
    first.reset(3)
    record(first, np.random.default_rng(0), 120)
    second.load_state_dict(first.state_dict())
    assert second.not_restored == [exact_resume.ELSEWHERE]
    assert second.starts.all()
    assert "state that outlives an episode" in about_resume(environment)


@pytest.mark.parametrize("environment", [Walk, OwnState, hidden.OfActionSpace, hidden.OfOlderGenerators])
def test_the_checker_finds_nothing_where_nothing_outlives_an_episode(environment: Any) -> None:
    assert "continues exactly" in about_resume(environment)


def about_resume(environment: Any) -> str:
    """What `duetto check` says of resuming."""
    findings = check.Findings()
    check.check_resume(findings, make(environment), make(environment), 400)
    return findings[-1].sentence


@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # SWIG in Box2D
def test_recording_changes_no_number() -> None:
    bare, recorded = gymnasium.make("LunarLander-v3"), exact_resume.recorder(gymnasium.make("LunarLander-v3"))
    traces = []
    for env in (bare, recorded):
        env.action_space.seed(0)
        seen = [env.reset(seed=1)[0]]
        for _ in range(300):
            obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            seen += [obs, np.array([reward, terminated, truncated])]
            if terminated or truncated:
                seen.append(env.reset()[0])
        traces.append(np.concatenate(seen))
    assert np.array_equal(*traces)


# ------------------------------------------------------------------------------------------- what was set, own states
class Quiet(Walk):
    """A walk that does not end by itself."""

    def step(self, action: np.ndarray) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


class Paying(Quiet):
    """Each step gives what was set."""

    def __init__(self) -> None:
        super().__init__()
        self.pay: Any = (1.0, 0)

    def step(self, action: np.ndarray) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float(sum(self.pay)), *rest


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_what_is_set_is_set_again_at_its_place(vectorization: Any) -> None:
    first = make(Paying, vectorization=vectorization)
    first.reset(0)
    paid, second = [], first
    for step in range(9):
        if step in (3, 6):
            first.set_attr("pay", (step, 1) if step == 3 else np.array([step, 1.0]))
        paid += record(first, np.random.default_rng(step), 1)
        if step in (2, 5, 8):
            second = make(Paying, vectorization=vectorization)
            second.load_state_dict(first.state_dict())
            assert second.resumed_exactly, second.not_restored
            if step < 8:
                second.close()
    assert [row[3].item() for row, _ in paid] == [1.0] * 3 + [4.0] * 3 + [7.0] * 3
    assert_equal(*(record(stepper, np.random.default_rng(9), 3) for stepper in (first, second)))
    first.set_attr("pay", object())
    assert obstacles(first.state_dict()["environments"]) == ["its pay was set to a value that no checkpoint holds"]
    first.close()
    second.close()


class QuietOwn(OwnState):
    def step(self, action: np.ndarray) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, False, info


@pytest.mark.parametrize("wrap", [TimeLimit, gymnasium.wrappers.TimeAwareObservation])
def test_wrappers_around_one_that_saves_itself_come_back(wrap: Any) -> None:
    """A limit has its count; around another wrapper with state the episode is repeated."""

    def wrapped() -> gymnasium.Env:
        return wrap(TimeLimit(QuietOwn(), 9)) if wrap is not TimeLimit else TimeLimit(QuietOwn(), 9)

    first, second = make(wrapped), make(wrapped)
    first.reset(0)
    record(first, np.random.default_rng(0), 14)
    saved = first.state_dict()
    assert ("own" in saved["environments"]["0"]) == (wrap is TimeLimit)
    second.load_state_dict(saved)
    assert second.resumed_exactly, second.not_restored
    assert_equal(*(record(stepper, np.random.default_rng(1), 14) for stepper in (first, second)))


# ------------------------------------------------------------------------------------------- what is not repeated
class Robot(Walk):
    metadata: ClassVar[dict[str, Any]] = {"resets_only": True}


@pytest.mark.parametrize("limit", ["steps", "seconds", "metadata"])
def test_what_is_not_repeated_begins_a_new_episode_without_a_step(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (make(Robot if limit == "metadata" else Quiet) for _ in range(2))
    if limit == "steps":
        monkeypatch.setattr(exact_resume, "LONGEST", 9)
    if limit == "seconds":
        monkeypatch.setattr(exact_resume, "PATIENCE", 0.0)
    first.reset(0)
    record(first, np.random.default_rng(0), 10)
    state = first.state_dict()
    plain(state)
    monkeypatch.setattr(Walk, "step", None)
    second.load_state_dict(state)
    said = {"steps": "more than 9 steps", "seconds": "more than 0 s", "metadata": "resets_only"}[limit]
    [why] = second.not_restored
    assert said in why
    assert obstacles(state["environments"]) == [why]
    assert second.starts.all()


def test_videos_are_not_written_again() -> None:
    """The wrapper needs a package that few have, so only its kind is looked at."""
    filmed = object.__new__(gymnasium.wrappers.RecordVideo)
    gymnasium.Wrapper.__init__(filmed, Walk())
    assert "RecordVideo" in exact_resume._never(filmed)
    assert exact_resume._never(Walk()) == ""


def test_an_episode_whose_replay_raises_begins_a_new_one() -> None:
    class Frail(Walk):
        broken = False

        def step(self, action: np.ndarray) -> Any:
            if Frail.broken:
                raise RuntimeError("no power")
            return super().step(action)

    first, second = make(Frail), make(Frail)
    first.reset(0)
    record(first, np.random.default_rng(0), 3)
    state = first.state_dict()
    Frail.broken = True
    second.load_state_dict(state)
    assert second.not_restored == ["repeating its episode raised RuntimeError: no power"]


# ------------------------------------------------------------------------------------------- plain values
