"""What `duetto.check` finds, and that it outlives what it looks at."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import questionable_environments as questionable
from faulty_environments import RESETS, STEPS, Faulty
from gymnasium.spaces import Box, Text
from gymnasium.wrappers import NormalizeObservation, TimeLimit

import duetto
from duetto.environments import checking
from duetto.environments.checking import inside, judging
from duetto.environments.checking.findings import Finding
from duetto.environments.checking.playing import Played
from duetto.errors import UsageError


def found(environment: Any, until: str = "", steps: int = 120, **options: Any) -> dict[tuple[str, str], str]:
    """Sentences by level and subject, of what is tried before `until`, in this process."""
    sentences: dict[tuple[str, str], str] = {}
    looking = inside.look(environment, options, steps, 10.0)
    for one in looking:
        if isinstance(one, Finding):
            sentences[one.level, one.about] = sentences.get((one.level, one.about), "") + one.sentence
        elif until and until in one:
            looking.close()
            break
    return sentences


def bad(sentences: dict[tuple[str, str], str]) -> set[tuple[str, str]]:
    """What is not fine, but for speed: other processes may work on this machine's cores."""
    return {key for key in sentences if key[0] != "fine" and key[1] != "speed"}


# ------------------------------------------------------------------------------------------------ nothing wrong
def test_nothing_is_said_against_what_is_right():
    sentences = found(questionable.Plain, steps=3000)
    assert bad(sentences) == set()
    assert {about for _, about in sentences} == {
        *("spaces", "contract", "observations", "rewards", "ends", "speed", "seeds", "saving", "gymnasium", "video"),
    }
    assert "crossq, ddpg, ppo, sac, td3 can learn from it" in sentences["fine", "spaces"]
    assert "of 5 to 9 steps: 0 truncated" in sentences["fine", "ends"]
    assert "frames of 6 × 4" in sentences["fine", "video"]


def test_an_id_with_a_time_limit():
    sentences = found("Pendulum-v1", until="seed", steps=450)
    assert bad(sentences) == set()
    assert (
        sentences["fine", "ends"]
        == "2 episodes of 200 to 200 steps: 2 truncated, 0 terminated. The time limit is 200 steps."
    )


# ------------------------------------------------------------------------------------------------ broken
@pytest.mark.parametrize("fault", [*STEPS, *RESETS])
def test_every_breach_of_the_contract_is_broken(fault: str):
    sentences = found(Faulty, fault=fault)
    assert ("broken", "contract") in sentences
    assert not any(about in ("seeds", "saving") for _, about in sentences)  # nothing behind it is tried


def test_where_it_was_raised_is_said():
    sentence = found(partial(questionable.Ends, "sys.exit"))["broken", "contract"]
    assert sentence.startswith("step raised SystemExit: 3. Correct the environment. (Random actions, after 2 steps, ")
    assert "questionable_environments.py line " in sentence


@pytest.mark.parametrize("part", ["observation", "reward"])
def test_nan(part: str):
    class Bad(questionable.Plain):
        def step(self, action: Any) -> Any:
            obs, reward, *rest = super().step(action)
            return (obs * np.float32("nan"), reward, *rest) if part == "observation" else (obs, np.inf, *rest)

    assert f"The {part} of step 1 is " in found(Bad)["broken", "numbers"]


BROKEN: list[tuple[Callable[..., Any], str, str]] = [
    (questionable.OldLimit, "ends", "Give truncated=True there, and terminated=False"),
    (lambda: NormalizeObservation(questionable.Plain()), "statistics", "It has a NormalizeObservation"),
    (lambda: 3, "making", "Return one gymnasium.Env"),
]


@pytest.mark.parametrize(("environment", "about", "sentence"), BROKEN)
def test_broken(environment: Any, about: str, sentence: str):
    assert sentence in found(environment, until="seed")["broken", about]


@pytest.mark.parametrize("which", ["observation_space", "action_space"])
def test_spaces_that_nothing_learns_from(which: str):
    class Odd(questionable.Plain):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, which, Text(3))

    assert "is not supported" in found(Odd)["broken", "making"]


def test_unbounded_actions():
    class Unbounded(questionable.Plain):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Box(-np.inf, np.inf, (1,))

    assert found(Unbounded, until="seed")["fine", "spaces"].endswith("Box(1,): ppo can learn from it.")


def test_a_constructor_that_raises_or_leaves():
    def raises() -> Any:
        raise ValueError("no licence")

    def leaves() -> Any:
        raise SystemExit(4)

    assert "ValueError: no licence" in found(raises)["broken", "making"]
    assert "sys.exit (4)" in found(leaves)["broken", "making"]


# ------------------------------------------------------------------------------------------------ costs
COSTS = [
    (questionable.OneBuffer, "observations", "they are one buffer"),
    (questionable.Doubles, "observations", "is float64, where its space says float32"),
    (questionable.Lists, "observations", "is a list, where its space says float32"),
    (questionable.Outside, "observations", "leaves its space: "),
    (questionable.Large, "observations", "--normalize-observations"),
    (questionable.Pushy, "actions", "changes the action that it is handed"),
    (questionable.SameLength, "ends", "terminated after exactly 8 steps"),
    (questionable.Endless, "ends", "there is no time limit"),
    (questionable.Huge, "rewards", "Scale them down"),
]


@pytest.mark.parametrize(("environment", "about", "sentence"), COSTS)
def test_costs_while_it_is_played(environment: Any, about: str, sentence: str):
    sentences = found(environment, until="seed")
    assert bad(sentences) == {("costs", about)}
    assert sentence in sentences["costs", about]


def test_a_part_of_an_action_that_was_changed_is_noticed():
    assert ("costs", "actions") in bad(found(questionable.Pusher, until="seed"))


@pytest.mark.parametrize("environment", [questionable.Masked, questionable.Cockpit])
def test_masks_are_kept_to(environment: Any):
    """Also where seeds are tried."""
    sentences = found(environment, until="saved")
    assert bad(sentences) == set()
    assert ("fine", "seeds") in sentences
    assert "algorithms that choose take allowed actions alone" in sentences["fine", "actions"]


SPEEDS = [
    (1.0, 0.2, 20, "fine", "833 steps a second in this process, resets included, which take 17% of the time."),
    (1.0, 0.8, 20, "costs", "wait for each reset"),
    (1.0, 0.8, 2000, "fine", "44% of the time."),  # 0.4 ms each are not worth a word
    (10.0, 0.0, 20, "costs", "a million steps take 2.8 hours of the environment alone"),
]


@pytest.mark.parametrize(("steps", "resets", "count", "level", "sentence"), SPEEDS)
def test_speed(steps: float, resets: float, count: int, level: str, sentence: str):
    """Of 1,000 steps."""
    [one] = judging.speed(Played(steps=1000, step_seconds=steps, reset_seconds=resets, resets=count))
    assert (one.level, one.about) == (level, "speed")
    assert sentence in one.sentence


def test_a_limit_ends_what_is_endless():
    assert bad(found(lambda: TimeLimit(questionable.Endless(), 10), until="seed")) == set()


SEEDS = [
    (questionable.GlobalRandom, "It draws from the global generators"),
    (questionable.Clock, "look for what depends on time"),
    (questionable.Unseeded, "call super().reset(seed=seed)"),
    (questionable.Remembers, "in one environment: the observation differs at the reset"),
    (questionable.Numbered, "in two environments: the observation differs at the reset"),
]


@pytest.mark.parametrize(("environment", "sentence"), SEEDS)
def test_seeds_that_do_not_repeat(environment: Any, sentence: str):
    sentences = found(environment, until="saved")
    assert bad(sentences) == {("costs", "seeds")}
    assert "can be neither repeated nor compared" in sentences["costs", "seeds"]
    assert sentence in sentences["costs", "seeds"]


def test_what_cannot_be_saved_is_named():
    sentence = found(questionable.Unsaved)["costs", "saving"]
    assert "Unsaved.held is a value of type lock" in sentence
    assert "state_dict() and load_state_dict()" in sentence


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (questionable.Blind, "no render mode"),
        (questionable.WrongPicture, "render gives float64 of shape (4, 6)"),
        (questionable.PaleInk, "render gives float64 of shape (4, 6, 3)"),
    ],
)
def test_what_cannot_be_filmed(environment: Any, sentence: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inside.keeping, "saving", lambda *_, **__: ())  # a process of its own
    assert sentence in found(environment)["costs", "video"]


class Doubled(questionable.Plain):
    """Observations of float64: an offset, and how far they go around it."""

    def __init__(self, offset: float, spread: float) -> None:
        super().__init__()
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.offset, self.spread = offset, spread

    def observe(self) -> Any:
        return self.offset + self.spread * self.np_random.normal(size=2)


LOST = "has numbers that float32, which networks take, does not tell apart: "


@pytest.mark.parametrize(
    ("offset", "spread", "what"),
    [
        (1.7e9, 1.0, r"1[67]\d+\.\d+ becomes 1[67]\d+\. Subtract"),
        (1e5, 1e-4, r"99999.* and .* both become 100000\."),
        (1e5, 1.0, ""),
    ],
)
def test_what_float32_loses(offset: float, spread: float, what: str):
    sentences = found(partial(Doubled, offset, spread), until="seed")
    assert (LOST in sentences["costs", "observations"]) == bool(what)
    if what:
        assert re.search(LOST + what, sentences["costs", "observations"])


def test_what_float32_cannot_hold():
    sentence = found(partial(Doubled, 1e300, 1.0), until="seed")["broken", "numbers"]
    assert sentence.startswith("Of step 0, the observation is beyond 3.4e+38, where float32 ends ([1.e+300 1.e+300]). ")


class Frames(questionable.Plain):
    """A stack of grey pictures, as a wrapper gives it."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(0, 255, (4, 20, 20, 1), np.uint8)

    def observe(self) -> Any:
        return np.zeros((4, 20, 20, 1), np.uint8)


def test_a_stack_of_pictures_that_is_no_image():
    assert "uint8 of shape (4, 20, 20, 1), looks like an image" in found(Frames, until="played")["costs", "images"]


class Reaching(questionable.Plain):
    """With goals; what it says of others is right, wrong, or missing."""

    def __init__(self, says: str) -> None:
        super().__init__()
        part = Box(-1, 1, (2,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict(dict.fromkeys(names, part))
        if says != "nothing":
            self.compute_reward: Any = self.say if says == "right" else lambda *_: 5.0

    def observe(self) -> Any:
        return {name: super(Reaching, self).observe() for name in self.observation_space}

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, float(self.say(obs["achieved_goal"], obs["desired_goal"], {})), *rest

    def say(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.linalg.norm(achieved - desired, axis=-1)


@pytest.mark.parametrize(
    ("says", "level", "sentence"),
    [
        ("right", "fine", "--hindsight can be used"),
        ("wrong", "costs", "something else than the steps did, in 60 of 60"),
        ("nothing", "costs", "has no compute_reward"),
    ],
)
def test_goals(says: str, level: str, sentence: str):
    assert sentence in found(partial(Reaching, says), until="saved")[level, "goals"]


# ------------------------------------------------------------------------------------------------ in its own process
ENDINGS = [
    ("os._exit", "ending", "ended with exit code 3"),
    ("signal", "ending", "was killed by SIGKILL"),
    ("hang", "hanging", "has not answered for 3 s, while it was played"),
]


@pytest.mark.parametrize(("how", "about", "sentence"), ENDINGS)
def test_it_outlives_the_environment(how: str, about: str, sentence: str):
    findings = duetto.check(partial(questionable.Ends, how), timeout=3)
    assert [one.about for one in findings if one.level == "broken"] == [about]
    assert sentence in findings[-1].sentence


def test_what_is_printed_is_caught(capfd: pytest.CaptureFixture[str]):
    findings = duetto.check(partial(questionable.Ends, "print"), steps=50)
    assert [one.about for one in findings if one.level != "fine" and one.about != "speed"] == ["video", "printing"]
    assert "'I am here'" in findings[-1].sentence
    assert capfd.readouterr() == ("", "")


def test_input_finds_nobody():
    [fault] = [one for one in duetto.check(partial(questionable.Ends, "input")) if one.level == "broken"]
    assert "EOFError" in fault.sentence


def test_what_cannot_be_sent_is_tried_here(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inside.keeping, "saving", lambda *_, **__: ())
    lock = threading.Lock()

    def locked() -> gymnasium.Env:
        with lock:
            return questionable.Plain()

    findings = duetto.check(locked, steps=100)
    assert [(one.level, one.about) for one in findings if one.level != "fine" and one.about != "speed"] == [
        ("costs", "processes"),
        ("costs", "video"),
    ]


def test_an_instance_is_left_as_it_is():
    instance = questionable.Plain()
    instance.reset(seed=1)
    assert {one.level for one in duetto.check(instance, steps=100)} <= {"fine", "costs"}
    assert instance.time == 0


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ("Pendulm-v1", "Did you mean Pendulum-v1"),
        (gymnasium.vector.SyncVectorEnv([questionable.Plain]), "is a vector environment"),
    ],
)
def test_mistakes_in_the_call(environment: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        duetto.check(environment)
    with pytest.raises(UsageError, match="steps is 0"):
        checking.check("Pendulum-v1", steps=0)


class BothFlags(questionable.Plain):
    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, over, info


class SometimesBothFlags(questionable.Plain):
    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, over and self.episode % 3 == 0, info


class MaskMethod(questionable.Plain):
    def action_masks(self) -> Any:
        return np.ones(2, bool)


class NoStep(questionable.Plain):
    def reset(self, **_: Any) -> Any:
        return self.observe()


def test_an_end_of_both_kinds_is_not_fine():
    sentences = found(BothFlags)
    assert "ended with terminated and truncated at once, and the first one counts" in sentences["broken", "ends"]
    counted = re.search(r"(\d+) truncated, (\d+) terminated", sentences["fine", "ends"])
    assert counted
    assert counted[1] == counted[2] != "0"


def test_a_task_that_is_over_just_when_the_time_is_up_is_fine():
    assert ("broken", "ends") not in found(SometimesBothFlags)


def test_a_method_that_nobody_reads_is_named():
    assert "It has a method action_masks, which nobody reads" in found(MaskMethod)["costs", "info"]


def test_what_was_not_seen_is_not_called_fine():
    assert ("fine", "observations") not in found(NoStep)
