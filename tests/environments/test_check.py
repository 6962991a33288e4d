"""What `duetto.check` finds, and that it survives the environment."""

from __future__ import annotations

import re
import threading
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import questionable_environments as questionable
from gymnasium.wrappers import NormalizeObservation, TimeLimit, TransformObservation

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.errors import UsageError


def check(environment: Any, steps: int = 120, **options: Any) -> dict[tuple[str, str], str]:
    """Sentences by level and subject."""
    findings = duetto.check(environment, steps=steps, environment_options=options)
    keys = [(finding.level, finding.about) for finding in findings]
    assert len(keys) == len(set(keys))
    return {key: finding.sentence for key, finding in zip(keys, findings, strict=True)}


def faults(sentences: dict[tuple[str, str], str]) -> set[tuple[str, str]]:
    """What is not fine, except for speed (other processes may use the processor) and rendering."""
    return {key for key in sentences if key[0] != "fine" and key[1] not in ("speed", "render")}


# ----------------------------------------------------------------------------------------------------------- no faults
def test_a_correct_environment():
    sentences = check(questionable.Plain, steps=2000)
    assert faults(sentences) == set()
    assert {about for _, about in sentences} == {
        *("spaces", "contract", "observations", "rewards", "episodes", "speed", "gymnasium", "determinism", "resume"),
        *("render", "processes"),
    }
    able = ", ".join(name for name, kind in ALGORITHMS.items() if "Box" in kind.actions)
    assert f"{able} can learn from it" in sentences["fine", "spaces"]
    assert "of 5 to 9 steps: 0 truncated" in sentences["fine", "episodes"]
    assert "frames of 6 × 4" in sentences["fine", "render"]


def test_an_id_with_a_time_limit():
    sentences = check("Pendulum-v1", steps=450)
    assert faults(sentences) == set()
    ends = "2 episodes of 200 to 200 steps: 2 truncated, 0 terminated. The time limit is 200 steps."
    assert sentences["fine", "episodes"] == ends


@pytest.mark.parametrize("environment", [questionable.NumPyFlags, questionable.SometimesBothFlags])
def test_unusual_and_correct(environment: Any):
    assert faults(check(environment)) == set()


@pytest.mark.parametrize("environment", [questionable.Masked, questionable.Cockpit])
def test_only_allowed_actions_are_played(environment: Any):
    sentences = check(environment)
    assert faults(sentences) == set()
    assert "algorithms choose among allowed actions" in sentences["fine", "masks"]


def test_a_time_limit_ends_endless_episodes():
    assert faults(check(lambda: TimeLimit(questionable.Endless(), 10))) == set()


def test_unbounded_actions():
    assert check(questionable.Unbounded)["fine", "spaces"].endswith("Box(1,): ppo can learn from it.")


# ------------------------------------------------------------------------------------------------------------- broken
BROKEN: list[tuple[Any, str, str]] = [
    (lambda: NormalizeObservation(questionable.Plain()), "normalization", "Training refuses its NormalizeObservation"),
    (questionable.BothFlags, "episodes", "ended with terminated and truncated at once"),
    (partial(questionable.Plain, threading.Lock()), "making", "cannot be sent to a separate process"),
    (partial(questionable.Unsupported, "observation_space"), "making", "is not supported"),
    (partial(questionable.Unsupported, "action_space"), "making", "is not supported"),
    (questionable.OnlyObservation, "contract", "perhaps an observation alone, as in the old Gym"),
    (partial(questionable.Ends, "sys.exit"), "contract", 'questionable_environments.py", line '),
    (partial(questionable.NaN, "observation"), "numbers", "the observation is NaN or infinite"),
    (partial(questionable.NaN, "reward"), "numbers", "the reward is NaN or infinite"),
]


@pytest.mark.parametrize(("environment", "about", "sentence"), BROKEN)
def test_broken(environment: Any, about: str, sentence: str):
    sentences = check(environment)
    assert sentence in sentences["broken", about]
    assert [key for key in faults(sentences) if key[0] == "broken"] == [("broken", about)]
    if about in ("making", "contract", "numbers"):
        assert "Nothing after this was checked." in sentences["broken", about]
        assert not any(about in ("observations", "determinism", "resume") for _, about in sentences)


# -------------------------------------------------------------------------------------------------------------- costs
COSTS = [
    (questionable.OneBuffer, "gymnasium", "share an object"),
    (questionable.Large, "observations", "--normalize-observations"),
    (questionable.SameLength, "episodes", "terminated after exactly 8 steps"),
    (questionable.Endless, "episodes", "there is no time limit"),
    (questionable.Huge, "rewards", "Scale them down"),
    (questionable.MaskMethod, "masks", "Its method action_masks is not read"),
    (questionable.Frames, "images", "uint8 of shape (4, 20, 20, 1), looks like an image"),
    (questionable.BadLoad, "resume", "KeyError: 'episode'"),
]


@pytest.mark.parametrize(("environment", "about", "sentence"), COSTS)
def test_costs(environment: Any, about: str, sentence: str):
    sentences = check(environment)
    assert faults(sentences) == {("costs", about)}
    assert sentence in sentences["costs", about]


def test_another_dtype_than_the_spaces():
    sentences = check(lambda: TransformObservation(questionable.Plain(), lambda obs: obs.astype(np.float64), None))
    assert "The observation is float64, its space says float32" in sentences["costs", "observations"]


def test_observations_outside_their_space():
    sentences = check(questionable.Outside)
    assert "leaves its space: element 1 ranges from 49" in sentences["costs", "observations"]
    assert "its bounds are -1 and 1" in sentences["costs", "observations"]


def test_a_slow_environment():
    assert "a million steps need" in check(questionable.Slow, steps=20)["costs", "speed"]


SEEDS = [
    (questionable.Unseeded, "Call super().reset(seed=seed)"),
    (questionable.Remembers, "the first observation differs in one environment"),
    (questionable.Numbered, "the first observation differs in two environments"),
]


@pytest.mark.parametrize(("environment", "sentence"), SEEDS)
def test_seeds_that_do_not_repeat(environment: Any, sentence: str):
    assert sentence in check(environment)["costs", "determinism"]


def test_state_that_no_attribute_holds():
    assert "observation differs at step" in check(questionable.Outlives, steps=2000)["costs", "resume"]


RENDER = [
    (questionable.Blind, 'lacks the render mode "rgb_array"'),
    (questionable.WrongPicture, "render gives an array of shape (4, 6) and dtype float64"),
]


@pytest.mark.parametrize(("environment", "sentence"), RENDER)
def test_environments_that_do_not_render(environment: Any, sentence: str):
    assert sentence in check(environment)["costs", "render"]


# --------------------------------------------------------------------------------------------------- the child process
ENDINGS = [
    (partial(questionable.Ends, "os._exit"), "process", "vector step 3: its process ended with exit code 3"),
    (partial(questionable.Ends, "signal"), "process", "was killed by SIGKILL"),
    (questionable.leaves, "making", "making it raised SystemExit: 4"),
    (partial(questionable.Ends, "hang"), "process", "That was while random actions were played. Its last output: 'hm'"),
]


@pytest.mark.parametrize(("environment", "about", "sentence"), ENDINGS)
def test_it_survives_the_environment(environment: Any, about: str, sentence: str):
    findings = duetto.check(environment, timeout=2)
    assert [finding.about for finding in findings if finding.level == "broken"] == [about]
    assert sentence in findings[-1].sentence


def test_printing_does_not_reach_the_terminal(capfd: pytest.CaptureFixture[str]):
    assert faults(check(partial(questionable.Ends, "print"))) == set()
    assert capfd.readouterr() == ("", "")


def test_input_reads_nothing():
    assert "EOFError" in check(partial(questionable.Ends, "input"))["broken", "contract"]


def test_an_instance_is_left_as_it_is():
    instance = questionable.Plain()
    instance.reset(seed=1)
    assert faults(check(instance)) == set()
    assert instance.time == 0


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ("Pendulm-v1", "Did you mean: `Pendulum`"),
        (gymnasium.vector.SyncVectorEnv([questionable.Plain]), "is a vector environment"),
    ],
)
def test_mistakes_in_the_call(environment: Any, sentence: str):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        duetto.check(environment)


def test_mistakes_in_the_numbers():
    with pytest.raises(UsageError, match="steps is 0"):
        duetto.check("Pendulum-v1", steps=0)
