"""`duetto check`: its text, its JSON and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import Command

FILE = """
import gymnasium
import numpy as np


class Mine(gymnasium.Env):
    def __init__(self, good=True):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.good = good

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, bool(self.np_random.random() < 0.2), False, {} if self.good else None


CONSTANT = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE, "utf-8")
    return path


def test_check_reports_findings_of_class_in_file(duetto: Command, file: Path):
    out = duetto("check", "./mine.py:Mine", "--steps", "200", "--json").printed()
    said = json.loads(out)
    assert (said["environment"], said["broken"]) == ("./mine.py:Mine", 0)
    assert {"level", "about", "sentence"} == set(said["findings"][0])
    costs = [one["about"] for one in said["findings"] if one["level"] == "costs"]
    assert [about for about in costs if about != "speed"] == ["render"]  # a busy machine is slow
    assert {"level": "fine", "about": "processes", "sentence": said["findings"][-1]["sentence"]} == said["findings"][-1]


def test_check_of_broken_environment_exits_with_1(duetto: Command, file: Path):
    code, out, err = duetto("check", "./mine.py:Mine", "--environment-options", "good=false")
    assert code == 1
    assert err == "duetto: ./mine.py:Mine is broken in 1 point(s): contract.\n"
    assert out.startswith("Broken: training fails or learns the wrong thing\n  contract: Mine, environment 0, vector")
    assert "Passed\n" in out


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("./mine.py", "Say which class or function of"),
        ("./mine.py:Min", "Did you mean 'Mine'?"),
        ("./mine.py:CONSTANT", "has no class or function 'CONSTANT'"),
        ("./other.py:Mine", "cannot be read"),
        ("Pendulm-v1", "Did you mean Pendulum-v1?"),
    ],
)
def test_mistakes_in_check_call_exit_with_2(duetto: Command, file: Path, name: str, sentence: str):
    code, out, err = duetto("check", name)
    assert (code, out) == (2, "")
    assert sentence in err


def test_option_recommended_by_check_is_accepted_by_train(duetto: Command, file: Path):
    file.write_text(
        FILE.replace("(-1, 1, (2,)", "(-9e9, 9e9, (2,)").replace(
            "np.zeros(2, np.float32), {}", "np.full(2, 1e9, np.float32), {}"
        )
    )
    out = " ".join(duetto("check", "./mine.py:Mine", "--steps", "50").out.split())
    (option,) = set(re.findall(r"use (--normalize-observations \w+)", out))
    assert duetto("train", "sac", "Pendulum-v1", *option.split(), "--dry-run").code == 0
