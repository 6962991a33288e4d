"""Errors of custom environments name the environment, the step, the fault and the remedy."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import gymnasium
import gymnasium.spaces as gym
import numpy as np
import pytest
from faulty_environments import INVALID_STEPS, VALID_STEPS, Faulty, Spaces
from gymnasium.vector import VectorEnv
from vector_envs import Whole

from duetto.environments import VecEnv, make
from duetto.errors import EnvironmentFailedError, UsageError

MESSAGES = {
    "four values": "step gave 4 values, as in the old Gym. Return observation, reward, terminated, truncated, info",
    "no values": "step gave None. Return observation, reward",
    "reward None": "step gave None as reward. Return a number",
    "reward array": "step gave an array of shape (1,) and dtype float64 as reward",
    "terminated None": "step gave None as terminated. Return True or False",
    "terminated text": "step gave the text 'no' as terminated",
    "terminated 2": "step gave 2 as terminated",
    "info None": "step gave None as info. Return a dict",
    "observation None": "it gave an observation that is None, its space says (2,)",
    "observation text": "it gave an observation that is the text 'here', its space says (2,)",
    "observation texts": "it gave an observation that is an array of shape (2,) and dtype <U1, its space wants float32",
    "observation ragged": "it gave no observation (ValueError)",
    "observation shape": "it gave an observation of shape (3,), its space says (2,)",
    "observation complex": "it gave an observation that is an array of shape (2,) and dtype complex128, its space",
}


def take_steps(stepper: VecEnv, steps: int) -> None:
    for _ in range(steps):
        stepper.step(np.zeros((stepper.num_envs, 1), np.float32))


@pytest.mark.parametrize("fault", INVALID_STEPS)
def test_invalid_step_result_is_reported(fault: str) -> None:
    stepper = make(Faulty, num_envs=3, kwargs={"fault": fault, "only": 6})
    stepper.reset(5)
    take_steps(stepper, 1)
    with pytest.raises(UsageError) as caught:
        take_steps(stepper, 1)
    assert str(caught.value).startswith(f"Faulty, environment 1, vector step 2: {MESSAGES[fault]}")


@pytest.mark.parametrize("form", VALID_STEPS)
def test_unusual_but_valid_step_result_is_accepted(form: str) -> None:
    stepper = make(Faulty, kwargs={"fault": form, "when": 2})
    stepper.reset(5)
    take_steps(stepper, 12)


@pytest.mark.parametrize("when", [1, 12])  # the first reset, and the reset after an episode
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            "observation alone",
            "reset gave an array of shape (2,) and dtype float32, perhaps an observation alone, as in",
        ),
        ("no info", "reset gave a tuple of 2. Return observation, info, where info is a dict."),
        ("None", "reset gave None"),
    ],
)
def test_invalid_reset_result_is_reported(when: int, fault: str, said: str) -> None:
    stepper = make(Faulty, kwargs={"fault": fault, "when": when})
    with pytest.raises(UsageError, match=re.escape(f"Faulty, environment 0, vector step {max(0, when - 2)}: {said}")):
        (stepper.reset(0), take_steps(stepper, 20))


@pytest.mark.parametrize(("when", "call", "step"), [(1, "reset", 0), (3, "step", 2), (12, "reset", 10)])
def test_environment_error_shows_only_the_environment_traceback(when: int, call: str, step: int) -> None:
    stepper = make(Faulty, num_envs=2, kwargs={"fault": "raise", "when": when, "only": 1})
    with pytest.raises(EnvironmentFailedError) as caught:
        (stepper.reset(0), take_steps(stepper, 20))
    sentence, *trace = str(caught.value).splitlines()
    said = f"{call} raised IndexError: list index out of range. Correct the environment."
    assert sentence == f"Faulty, environment 1, vector step {step}: {said}"
    assert "faulty_environments.py" in trace[0]
    assert "return [][3]" in "\n".join(trace)
    assert trace[-1] == "IndexError: list index out of range"
    assert not any("duetto/environments" in line for line in trace)
    assert isinstance(caught.value.__cause__, IndexError)


def test_old_gym_step_inside_a_wrapper_is_reported() -> None:
    env = gymnasium.wrappers.TimeLimit(Faulty("four values"), 100)
    stepper = make(env)
    stepper.reset(0)
    with pytest.raises(UsageError, match="vector step 2: step gave 4 values, as in the old Gym"):
        take_steps(stepper, 5)


def test_error_in_close_warns_and_closes_other_environments() -> None:
    closed: list[int] = []

    class Stuck(Faulty):
        def close(self) -> None:
            closed.append(1)
            raise OSError("no such window")

    with pytest.warns(UserWarning, match="close of .*Stuck.* raised OSError: no such window"):
        make(Stuck, num_envs=2).close()
    assert closed == [1, 1]


BOX, CHOICES = gym.Box(-1, 1, (2,), np.float32), gym.Discrete(2)


@pytest.mark.parametrize(
    ("observation", "action", "said"),
    [
        (None, CHOICES, "The observation_space of Spaces is None. Set it in"),
        (BOX, None, "The action_space of Spaces is None. Set it in"),
        ((2,), CHOICES, "The observation_space of Spaces is a tuple of 1. Set it in"),
        (gym.Box(-1, 1, (0,)), CHOICES, "The observation_space of Spaces cannot be used. The space Box.* is empty"),
        (BOX, gym.Box(-1, 1, (2, 0)), "The action_space of Spaces cannot be used. The space Box.* is empty"),
        (gym.Dict({}), CHOICES, "The observation_space of Spaces cannot be used. The space .* has no parts"),
        (gym.Dict({"a": gym.Box(0, 1, (0, 3))}), CHOICES, r'\(part "a"\) is empty'),
        (gym.Text(3), CHOICES, "The observation_space of Spaces cannot be used. The space Text.* is not supported"),
        (gym.Sequence(CHOICES), CHOICES, "Sequence"),
        (gym.Dict({"note": gym.Text(5)}), CHOICES, 'part "note"'),
        (gym.Dict({"a/b": CHOICES, "a": gym.Dict({"b": CHOICES})}), CHOICES, "same name"),
    ],
)
def test_missing_empty_or_unsupported_spaces_are_refused(observation: Any, action: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make(Spaces(observation, action))


@pytest.mark.parametrize(
    ("space", "given", "said"),
    [
        (gym.Discrete(3, start=1), 4, "an observation that is not in its space: 4"),
        (gym.Discrete(3), 1.0, "an observation that is 1.0, its space wants int64"),
        (gym.MultiDiscrete([2, 3]), [1, 3], r"an observation that is not in its space: \[1 3\]"),
        (gym.MultiBinary(2), [0, 2], "not in its space"),
        (gym.Box(0, 255, (2,), np.uint8), np.full(2, 0.5), "dtype float64, its space wants uint8"),
        (gym.Box(0, 255, (2,), np.uint8), np.array([0, 256]), r"not in its space: \[  0 256\]"),
        (gym.Dict({"a": gym.Discrete(2)}), {"b": 1}, r"no observation a \(KeyError\)"),
    ],
)
def test_observation_that_does_not_fit_its_space_is_reported(space: gymnasium.Space, given: Any, said: str) -> None:
    class Shows(Spaces):
        def reset(self, **_: Any) -> Any:
            return given, {}

    with pytest.raises(UsageError, match=f"Shows, environment 0, vector step 0: it gave .*{said}"):
        make(Shows(space, CHOICES)).reset(0)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, np.zeros((2, 3)), r"it gave an observation of shape \(2, 3\), its space says \(2, 2\)"),
        (1, np.zeros(3), r"step gave rewards, terminated and truncated of the shapes \(3,\), \(2,\), \(2,\)"),
        (3, None, r"of the shapes \(2,\), \(2,\), \(\) and"),
        (4, None, "None as infos"),
        (5, 0, "step gave 6 values"),
    ],
)
def test_invalid_vector_step_result_is_reported(place: int, value: Any, said: str) -> None:
    class Batch(VectorEnv):
        num_envs, single_observation_space, single_action_space = 2, BOX, CHOICES
        metadata: ClassVar = {"autoreset_mode": "NEXT_STEP"}

        def reset(self, **_: Any) -> Any:
            return np.zeros((2, 2)), {}

        def step(self, actions: Any) -> Any:
            given: list[Any] = [np.zeros((2, 2)), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {}]
            given[place : place + 1] = [value]
            return tuple(given)

    stepper = make(Batch())
    stepper.reset(0)
    with pytest.raises(UsageError, match=f"Batch, vector step 1: .*{said}"):
        stepper.step(np.zeros(2, int))


def test_error_in_a_vector_environment_is_reported() -> None:
    stepper = make(Whole([lambda: Faulty("raise")]))
    stepper.reset(0)
    with pytest.raises(EnvironmentFailedError, match=r"Whole, vector step 2: step raised IndexError: .*(?s:.*)\[3\]"):
        take_steps(stepper, 3)


class Unseeded(Faulty):
    def reset(self) -> Any:
        """Lack the arguments seed and options on purpose."""
        return super().reset()


def test_reset_without_seed_argument_error_shows_the_signature() -> None:
    stepper = make(lambda: Unseeded("info None", when=99))
    with pytest.raises(EnvironmentFailedError, match=r"Write def reset\(self, \*, seed=None, options=None\)"):
        stepper.reset(5)
