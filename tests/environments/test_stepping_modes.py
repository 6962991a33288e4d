"""SPEC 1.1: whatever the autoreset mode, real transitions only, with the true final observation."""

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

from duetto.environments import Episode, Transition, VecEnv, make
from duetto.errors import NonFiniteError, UsageError

MODES = [*AutoresetMode]


def counting(mode: AutoresetMode) -> VecEnv:
    return make(Whole([Counting], autoreset_mode=mode, copy=False))


@pytest.mark.parametrize(("mode", "stored"), [(MODES[0], 6), (MODES[1], 8), (MODES[2], 8), (None, 8)])
def test_eight_vector_steps_of_the_counting_environment(mode: AutoresetMode | None, stored: int) -> None:
    stepper = make(Counting) if mode is None else counting(mode)
    stepper.reset(0)
    seen, episodes = [], []
    for _ in range(8):
        row, ended = stepper.step(np.array([1]))
        seen += [(int(o[0]), int(n[0]), bool(t)) for o, n, t in zip(row.obs, row.next_obs, row.terminated, strict=True)]
        assert row.reward.dtype == np.float32
        assert row.reward.tolist() == [1.0] * len(row.env)
        episodes += ended
    once = [(0, 1, False), (1, 2, False), (2, 3, True)]
    assert seen == (once * 3)[:stored]
    assert episodes == [Episode(0, 3.0, 3)] * 2
    assert stepper.steps == 8


endings = st.lists(
    st.builds(
        lambda length, flags: Ending(length, *flags),
        st.integers(1, 5),
        st.sampled_from([(True, False), (False, True), (True, True)]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(scripts=st.lists(endings, min_size=1, max_size=4), steps=st.integers(1, 25), copy=st.booleans())
def test_stored_transitions_are_what_happened(scripts: list[list[Ending]], steps: int, copy: bool) -> None:
    for mode in [*MODES, None]:
        # With SAME_STEP, Gymnasium itself keeps a mere reference to the final observation: no buffer may be reused.
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
            array[...] = 0  # rule C4: what we were given is ours
    for i, env in enumerate(envs):
        assert stored[i] == env.log
        assert finished[i] == env.finished


@pytest.mark.parametrize("mode", [*MODES, None])
def test_nothing_returned_shares_memory(mode: AutoresetMode | None) -> None:
    script = [Ending(3, True, False)]
    stepper = make(partial(Scripted, script) if mode is None else Whole([partial(Scripted, script)], copy=False))
    stepper.reset(0)
    kept: list[tuple[Transition, Any]] = []
    for _ in range(10):
        stepper.obs[...] = -7.0  # a policy that normalises in place
        action = np.zeros((1, 1), np.float32)
        row, _ = stepper.step(action)
        action[...] = 9
        kept.append((row, [np.copy(part) for part in row]))
    for row, copies in kept:
        assert all(np.array_equal(part, copied) for part, copied in zip(row, copies, strict=True))
        assert (row.obs != -7.0).all()


class Simulator(VectorEnv):
    """Two environments that reset in the step in which they end, after 3 steps, as GPU simulators do; rewards are 1."""

    def __init__(self, declared: Any = None, *, final: bool = False, masked: bool = True) -> None:
        self.num_envs, self.time, self.final, self.masked = 2, np.zeros(2), final, masked
        self.metadata = {} if declared is None else {"autoreset_mode": declared}
        self.single_observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        self.time = np.array([0.0, 1.0])  # the second one ends earlier
        return self.time[:, None].copy(), {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        done, final = self.time == 3, self.time[:, None].copy()
        self.time[done] = 0
        infos = (
            {"final_obs": final} | ({"_final_obs": done} if self.masked else {}) if self.final and done.any() else {}
        )
        return self.time[:, None].copy(), np.ones(2), done, np.zeros(2, bool), infos


def test_an_undeclared_autoreset_mode_is_never_guessed() -> None:
    with pytest.raises(
        UsageError, match=r"Simulator declares nothing as its autoreset mode. Set its metadata\["
    ) as refusal:
        make(Simulator())
    assert all(mode.name in str(refusal.value) for mode in AutoresetMode)
    with pytest.raises(UsageError, match="Simulator declares never as its autoreset mode"):
        make(Simulator("never"))


@pytest.mark.parametrize("declared", ["SAME_STEP", "SameStep", AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("masked", [True, False])
def test_final_observations_without_a_mask_are_of_the_rows_that_are_done(declared: Any, masked: bool) -> None:
    stepper = make(Simulator(declared, final=True, masked=masked))
    stepper.reset(0)
    rows = [stepper.step(np.zeros(2, int)) for _ in range(6)]
    assert [row.next_obs[:, 0].tolist() for row, _ in rows] == [[1, 2], [2, 3], [3, 1], [1, 2], [2, 3], [3, 1]]
    assert [(one.env, one.length) for _, ended in rows for one in ended] == [(1, 2), (0, 3), (1, 3), (0, 3)]


@pytest.mark.parametrize("declared", ["NEXT_STEP", "DISABLED"])
def test_a_final_observation_contradicts_the_other_modes(declared: str) -> None:
    stepper = make(Simulator(declared, final=True))
    stepper.reset(0)
    stepper.step(np.zeros(2, int))
    with pytest.raises(UsageError, match=rf"environment 1, vector step 2: .*final_obs.*declared as {declared}"):
        stepper.step(np.zeros(2, int))


def test_a_reward_in_the_step_after_an_end_contradicts_next_step() -> None:
    stepper = make(Simulator("NextStep"))
    stepper.reset(0)
    for _ in range(2):
        stepper.step(np.zeros(2, int))
    with pytest.raises(UsageError, match=r"environment 1, vector step 3: .*declared as NEXT_STEP"):
        stepper.step(np.zeros(2, int))


def test_an_environment_that_gives_no_final_observation_contradicts_same_step() -> None:
    stepper = make(Simulator("SAME_STEP"))
    stepper.reset(0)
    stepper.step(np.zeros(2, int))
    with pytest.raises(UsageError, match=r"environment 1.*no final observation"):
        stepper.step(np.zeros(2, int))


def test_batched_final_observations_of_several_parts() -> None:
    class Several(Simulator):
        def step(self, actions: Any) -> Any:
            obs, *rest, infos = super().step(actions)
            return {"x": obs}, *rest, {key: {"x": value} for key, value in infos.items()}

        def reset(self, **_: Any) -> Any:
            return {"x": super().reset()[0]}, {}

    vector = Several("SAME_STEP", final=True, masked=False)
    vector.single_observation_space = gymnasium.spaces.Dict({"x": vector.single_observation_space})
    stepper = make(vector)
    stepper.reset(0)
    assert [stepper.step(np.zeros(2, int))[0].next_obs["x"][:, 0].tolist() for _ in range(3)] == [
        [1, 2],
        [2, 3],
        [3, 1],
    ]


@pytest.mark.parametrize(("bad", "field"), [("obs", "observation"), ("reward", "reward")])
@pytest.mark.parametrize("mode", [*MODES, None])
def test_nan_and_infinity_name_environment_field_and_step(bad: str, field: str, mode: AutoresetMode | None) -> None:
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


def test_a_bad_action_never_reaches_the_environment() -> None:
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


def test_huge_but_finite_numbers_pass() -> None:
    stepper = make(Scripted([Ending(5, True, False)]))
    stepper.reset(0)
    stepper.step(np.full((1, 1), 3e38, np.float32))  # its square is not finite


def test_seeds_count_up_and_resets_go_on() -> None:
    two = make("CartPole-v1", num_envs=2)
    two.reset(7)
    for i in range(2):
        one = make("CartPole-v1")
        one.reset(7 + i)
        assert np.array_equal(one.obs[0], two.obs[i])


def test_reset_env_resets_one() -> None:
    stepper = make("CartPole-v1", num_envs=2)
    stepper.reset(0)
    stepper.step(np.array([0, 1]))
    before = np.copy(stepper.obs[0])
    stepper.reset_env(1, 42)
    alone = make("CartPole-v1")
    alone.reset(42)
    assert np.array_equal(stepper.obs, [before, alone.obs[0]])
    row, _ = stepper.step(np.array([0, 1]))
    assert np.array_equal(row.obs[1], alone.obs[0])
    assert stepper._lengths.tolist() == [2, 1]


def test_rendering() -> None:
    assert make(Counting, render_mode="rgb_array").render().shape == (4, 5, 3)
    with pytest.raises(UsageError, match="rgb_array"):
        make(Counting).render()


def test_what_cannot_be_shown_is_said() -> None:
    class Blind(Counting):
        def render(self) -> Any:
            raise RuntimeError("no OpenGL platform")

    with pytest.raises(UsageError, match=r"Blind cannot be shown \(no OpenGL platform\)\. .* MUJOCO_GL=egl"):
        make(Blind, render_mode="rgb_array").render()


@pytest.mark.parametrize("mode", MODES)
def test_observations_in_parts_are_alike_in_every_mode(mode: AutoresetMode) -> None:
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


def test_a_bad_part_is_named() -> None:
    stepper = make(Components, kwargs={"bad": True}, num_envs=2)
    stepper.reset(0)
    stepper.step(np.zeros((2, 2)))
    with pytest.raises(NonFiniteError, match="Components, environment 0, vector step 2: the observation b/0 is NaN"):
        stepper.step(np.zeros((2, 2)))


class Enormous(Counting):
    """Its observations are more than a float32 holds, from the second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.taken = 0

    def reset(self, **arguments: Any) -> Any:
        return np.zeros(1), super().reset(**arguments)[1]

    def step(self, action: Any) -> Any:
        self.taken += 1
        return np.full(1, -1e300 if self.taken == 2 else 1.0), *super().step(action)[1:]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.filterwarnings("error")
def test_numbers_too_large_for_float32_count_as_infinite(several: bool) -> None:
    makers = [Enormous, Enormous]
    stepper = make(Whole(makers) if several else Enormous, num_envs=2)
    stepper.reset(0)
    stepper.step(np.zeros(2, int))
    sentence = r"environment 0, vector step 2: the observation is NaN or infinite \(\[-inf\]\)"
    with pytest.raises(NonFiniteError, match=sentence):
        stepper.step(np.zeros(2, int))
