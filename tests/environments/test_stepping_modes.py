"""SPEC 1.1: every autoreset mode gives only real transitions, with the true final observation."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_environments import Components, Counting, Ending, Scripted, Step
from vector_envs import Whole

from duetto.environments import VecEnv, make
from duetto.errors import NonFiniteError, UsageError

MODES = [*AutoresetMode]


endings = st.lists(
    st.builds(
        lambda length, flags: Ending(length, *flags),
        st.integers(1, 5),
        st.sampled_from([(True, False), (False, True), (True, True)]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40)
@given(scripts=st.lists(endings, min_size=1, max_size=4), steps=st.integers(1, 25), copy=st.booleans())
def test_transitions_equal_the_log_in_every_autoreset_mode(scripts: list[list[Ending]], steps: int, copy: bool) -> None:
    for mode in [*MODES, None]:
        # With SAME_STEP, Gymnasium keeps only a reference to the final observation, so no buffer may be reused.
        reuse = mode is not AutoresetMode.SAME_STEP
        makers = [partial(Scripted, script, number, reuse) for number, script in enumerate(scripts)]
        if mode is None:
            numbers = iter(range(len(makers)))
            stepper = make(lambda makers=makers, numbers=numbers: makers[next(numbers)](), num_envs=len(makers))
            envs: Any = stepper.engine.envs
        else:
            vector = Whole(makers, autoreset_mode=mode, copy=copy)
            stepper, envs = make(vector), vector.envs
        check_against_log(stepper, [env.unwrapped for env in envs], steps)


def check_against_log(stepper: VecEnv, envs: list[Any], steps: int) -> None:
    random = np.random.default_rng(0)
    stepper.reset(0)
    stored: list[list[Step]] = [[] for _ in envs]
    finished: list[list[tuple[float, int]]] = [[] for _ in envs]
    expect_start = np.ones(len(envs), bool)
    for _ in range(steps):
        acting_on = np.copy(stepper.obs)
        stepper.obs[...] = -7.0  # a policy that normalizes in place
        assert (stepper.starts == expect_start).all()
        row, ended = stepper.step(stepper.sample_actions(random))
        assert isinstance(row.obs, np.ndarray)
        assert isinstance(row.next_obs, np.ndarray)
        for k, i in enumerate(row.env):
            assert (row.obs[k] == acting_on[i]).all()
            own_action = np.float32(-2.0 + (np.float64(row.action[k, 0]) + 1) / 2 * 8)
            acted = envs[i].log[len(stored[i])].action
            assert abs(own_action - acted) < 1e-5
            done = (bool(row.terminated[k]), bool(row.truncated[k]))
            stored[i].append(Step(tuple(row.obs[k]), acted, row.reward[k], tuple(row.next_obs[k]), *done))
        for episode in ended:
            finished[episode.env].append((episode.total_reward, episode.length))
        # The first observation of an episode is the one whose time is 0.
        expect_start = stepper.obs[:, 2] == 0
        for array in (row.obs, row.next_obs, row.reward, row.terminated, row.env, acting_on):
            array[...] = 0  # rule C4: the caller owns the returned arrays
    for i, env in enumerate(envs):
        assert stored[i] == env.log
        assert finished[i] == env.finished


class Simulator(VectorEnv):
    """Two environments that end after 3 steps and reset in the same step, as GPU simulators do. Rewards are 1."""

    def __init__(self, declared: Any = None, *, final: bool = False, masked: bool = True) -> None:
        self.num_envs, self.time, self.final, self.masked = 2, np.zeros(2), final, masked
        self.metadata = {} if declared is None else {"autoreset_mode": declared}
        self.single_observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        self.time = np.array([0.0, 1.0])  # environment 1 ends earlier
        return self.time[:, None].copy(), {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        done, final = self.time == 3, self.time[:, None].copy()
        self.time[done] = 0
        infos = (
            {"final_obs": final} | ({"_final_obs": done} if self.masked else {}) if self.final and done.any() else {}
        )
        return self.time[:, None].copy(), np.ones(2), done, np.zeros(2, bool), infos


def test_undeclared_autoreset_mode_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"Simulator declares nothing as its autoreset mode. Set its metadata\["
    ) as refusal:
        make(Simulator())
    assert all(mode.name in str(refusal.value) for mode in AutoresetMode)
    with pytest.raises(UsageError, match="Simulator declares never as its autoreset mode"):
        make(Simulator("never"))


@pytest.mark.parametrize(
    ("declared", "final", "said"),
    [
        ("NEXT_STEP", True, "environment 1, vector step 2: .*final_obs.*declared as NEXT_STEP"),
        ("DISABLED", True, "environment 1, vector step 2: .*final_obs.*declared as DISABLED"),
        # A reward in the step after the end of an episode.
        ("NextStep", False, "environment 1, vector step 3: .*declared as NEXT_STEP"),
        ("SAME_STEP", False, "environment 1.*no final observation"),
    ],
)
def test_step_contradicting_the_declared_autoreset_mode_is_refused(declared: str, final: bool, said: str) -> None:
    stepper = make(Simulator(declared, final=final))
    stepper.reset(0)
    with pytest.raises(UsageError, match=said):
        [stepper.step(np.zeros(2, int)) for _ in range(3)]


@pytest.mark.parametrize(("declared", "masked"), [("SameStep", True), (AutoresetMode.SAME_STEP, False)])
def test_same_step_final_observations_with_and_without_a_mask(declared: Any, masked: bool) -> None:
    stepper = make(Simulator(declared, final=True, masked=masked))
    stepper.reset(0)
    rows = [stepper.step(np.zeros(2, int)) for _ in range(6)]
    assert [row.next_obs[:, 0].tolist() for row, _ in rows] == [[1, 2], [2, 3], [3, 1], [1, 2], [2, 3], [3, 1]]
    assert [(one.env, one.length) for _, ended in rows for one in ended] == [(1, 2), (0, 3), (1, 3), (0, 3)]


@pytest.mark.parametrize(
    ("bad", "field", "mode"),
    [("obs", "observation", None), ("reward", "reward", None), ("obs", "observation", MODES[0])],
)
def test_nonfinite_error_names_environment_field_and_step(bad: str, field: str, mode: AutoresetMode | None) -> None:
    makers = [Counting, partial(Counting, bad=bad)]
    numbers = iter(range(2))
    stepper = make(
        (lambda: makers[next(numbers)]()) if mode is None else Whole(makers, autoreset_mode=mode),
        num_envs=2,
    )
    stepper.reset(0)
    stepper.step(np.zeros(2, int))
    name = "Counting" if mode is None else "Whole"
    with pytest.raises(NonFiniteError, match=f"{name}, environment 1, vector step 2: the {field} is NaN or infinite"):
        stepper.step(np.zeros(2, int))


def test_invalid_action_never_reaches_the_environment() -> None:
    env = Scripted([Ending(5, True, False)])
    stepper = make(env)
    with pytest.raises(UsageError, match="before the first reset"):
        stepper.step(np.zeros((1, 1)))
    stepper.reset(0)
    with pytest.raises(NonFiniteError, match=r"vector step 1: the action is NaN or infinite \(\[nan\]\)"):
        stepper.step(np.array([[np.nan]]))
    with pytest.raises(UsageError, match=r"shape \(1,\).*need \(1, 1\)"):
        stepper.step(np.zeros(1))
    assert env.log == []


def test_seeds_count_up_and_reset_env_resets_one_environment() -> None:
    stepper, alone = make("CartPole-v1", num_envs=2), make("CartPole-v1")
    stepper.reset(7)
    for i in range(2):
        alone.reset(7 + i)
        assert np.array_equal(alone.obs[0], stepper.obs[i])
    stepper.step(np.array([0, 1]))
    before = np.copy(stepper.obs[0])
    stepper.reset_env(1, 42)
    alone.reset(42)
    assert np.array_equal(stepper.obs, [before, alone.obs[0]])
    row, _ = stepper.step(np.array([0, 1]))
    assert np.array_equal(row.obs[1], alone.obs[0])
    assert stepper._lengths.tolist() == [2, 1]


def test_render_requires_rgb_array() -> None:
    assert make(Counting, render_mode="rgb_array").render().shape == (4, 5, 3)
    with pytest.raises(UsageError, match="rgb_array"):
        make(Counting).render()


@pytest.mark.parametrize("mode", MODES[:2])
def test_dict_observations_are_equal_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    ours, vector = make(Components), make(Whole([Components], autoreset_mode=mode, copy=False))
    for stepper in (ours, vector):
        stepper.reset(5)
    random, episodes = np.random.default_rng(0), 0
    for _ in range(60):
        action = ours.sample_actions(random)
        expected, ended = ours.step(action)
        row, _ = vector.step(action)
        if not len(row.env):  # the NEXT_STEP environment only reset itself
            row, _ = vector.step(action)
        for tree, other in ((row.obs, expected.obs), (row.next_obs, expected.next_obs)):
            assert isinstance(tree, dict)
            assert isinstance(other, dict)
            assert list(tree) == list(other) == ["a", "b/0"]
            assert all(np.array_equal(tree[name], other[name]) for name in tree)
        episodes += len(ended)
    assert episodes >= 3


def test_nonfinite_error_names_the_observation_part() -> None:
    stepper = make(Components, kwargs={"bad": True}, num_envs=2)
    stepper.reset(0)
    stepper.step(np.zeros((2, 2)))
    with pytest.raises(NonFiniteError, match="Components, environment 0, vector step 2: the observation b/0 is NaN"):
        stepper.step(np.zeros((2, 2)))
