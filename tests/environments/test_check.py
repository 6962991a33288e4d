"""Findings of `duetto.check`, also for environments that crash or hang."""

from __future__ import annotations

import re
import threading
from functools import partial
from typing import Any

import gymnasium
import pytest
import questionable_environments as questionable
from gymnasium.wrappers import NormalizeObservation

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.errors import UsageError


def check(environment: Any, steps: int = 120, timeout: float = 60) -> dict[tuple[str, str], str]:
    """Return the sentences of the findings by level and subject."""
    findings = duetto.check(environment, steps=steps, timeout=timeout)
    keys = [(finding.level, finding.about) for finding in findings]
    assert len(keys) == len(set(keys))
    return {key: finding.sentence for key, finding in zip(keys, findings, strict=True)}


def faults(sentences: dict[tuple[str, str], str]) -> set[tuple[str, str]]:
    """Return the findings that are not fine, except speed (other processes may use the processor) and rendering."""
    return {key for key in sentences if key[0] != "fine" and key[1] not in ("speed", "render")}


# ----------------------------------------------------------------------------------------------------------- no faults
def test_correct_environment_has_no_faults_and_is_not_modified():
    instance = questionable.Plain()
    instance.reset(seed=1)
    sentences = check(instance, steps=600)
    assert instance.time == 0
    assert faults(sentences) == set()
    assert {about for _, about in sentences} == {
        *("spaces", "contract", "observations", "rewards", "episodes", "speed", "gymnasium", "determinism", "resume"),
        *("render", "processes"),
    }
    able = ", ".join(name for name, kind in ALGORITHMS.items() if "Box" in kind.actions)
    assert f"{able} can learn from it" in sentences["fine", "spaces"]
    assert "of 5 to 9 steps: 0 truncated" in sentences["fine", "episodes"]
    assert "frames of 6 × 4" in sentences["fine", "render"]


def test_check_reports_the_time_limit_of_an_id():
    sentences = check("Pendulum-v1", steps=450)
    assert faults(sentences) == set()
    ends = "2 episodes of 200 to 200 steps: 2 truncated, 0 terminated. The time limit is 200 steps."
    assert sentences["fine", "episodes"] == ends


def test_check_plays_only_unmasked_actions():
    sentences = check(questionable.Cockpit)
    assert faults(sentences) == set()
    assert "algorithms choose among allowed actions" in sentences["fine", "masks"]


# ------------------------------------------------------------------------------------------------------------- faults
BROKEN = [
    (lambda: NormalizeObservation(questionable.Plain()), "normalization", "Training refuses its NormalizeObservation"),
    (partial(questionable.Plain, threading.Lock()), "making", "cannot be sent to a separate process"),
    (partial(questionable.Unsupported, "action_space"), "making", "is not supported"),
    (questionable.NaN, "numbers", "the observation is NaN or infinite"),
    # These end or block their process.
    (partial(questionable.FailsLater, "input"), "contract", 'questionable_environments.py", line '),
    (partial(questionable.FailsLater, "os._exit"), "process", "vector step 3: its process ended with exit code 3"),
    (questionable.exit_when_made, "making", "making it raised SystemExit: 4"),
    (
        partial(questionable.FailsLater, "hang"),
        "process",
        "That was while random actions were played. Its last output: 'hm'",
    ),
]
COSTLY = {
    "gymnasium": "share an object",
    "observations": "--normalize-observations",
    "episodes": "terminated after exactly 8 steps",
    "rewards": "Scale them down",
    "masks": "Its method action_masks is not read",
    "render": 'lacks the render mode "rgb_array"',
}
WRONG = {
    "observations": "leaves its space: element 1 ranges from 49",
    "episodes": "there is no time limit",
    "resume": "KeyError: 'episode'",
    "render": "render gives an array of shape (4, 6) and dtype float64",
}
COSTS = [
    (questionable.Costly, COSTLY),
    (questionable.Wrong, WRONG),
    (
        questionable.FloatsWithLimit,
        {"gymnasium": "The observation is float64, its space says float32", "episodes": "terminated after exactly 8"},
    ),
    (questionable.Frames, {"images": "uint8 of shape (4, 20, 20, 1), looks like an image"}),
    (questionable.Unseeded, {"determinism": "Call super().reset(seed=seed)"}),
    (questionable.DependsOnResets, {"determinism": "the first observation differs in one environment"}),
    (questionable.DependsOnProcess, {"determinism": "the first observation differs in two environments"}),
    (questionable.StateOutlivesEpisodes, {"resume": "observation differs at step"}),
]


@pytest.mark.parametrize(("environment", "about", "sentence"), BROKEN)
def test_broken_environments_are_reported(environment: Any, about: str, sentence: str):
    sentences = check(environment, timeout=2 if about == "process" else 60)
    assert sentence in sentences["broken", about]
    assert [key for key in faults(sentences) if key[0] == "broken"] == [("broken", about)]
    if about in ("making", "contract", "numbers"):
        assert "Nothing after this was checked." in sentences["broken", about]
        assert not any(about in ("observations", "determinism", "resume") for _, about in sentences)


@pytest.mark.parametrize(("environment", "expected"), COSTS)
def test_costly_environments_are_reported(environment: Any, expected: dict[str, str]):
    sentences = check(environment, steps=600 if "resume" in expected else 120)
    for about, sentence in expected.items():
        assert sentence in sentences["costs", about]
    if environment in (questionable.Costly, questionable.Frames):
        assert {about for _, about in faults(sentences)} == set(expected) - {"render"}


# --------------------------------------------------------------------------------------------------- the child process
def test_environment_output_does_not_reach_the_terminal(capfd: pytest.CaptureFixture[str]):
    assert faults(check(partial(questionable.FailsLater, "print"))) == set()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("environment", "steps", "sentence"),
    [
        ("Pendulm-v1", 120, "Did you mean Pendulum-v1?"),
        (gymnasium.vector.SyncVectorEnv([questionable.Plain]), 120, "is a vector environment"),
        ("Pendulum-v1", 0, "steps is 0"),
    ],
)
def test_mistakes_in_check_call_are_refused(environment: Any, steps: int, sentence: str):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        duetto.check(environment, steps=steps)
