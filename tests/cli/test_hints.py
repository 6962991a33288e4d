"""What a person types who comes from another library, or thinks that it would be so, and what they are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, Command

from duetto.tools.cli import main

HINTS = [
    (
        "train ppo CartPole-v1 --batch-size 64",
        "ppo has no option --batch-size. Did you mean --minibatches?",
    ),
    ("train ppo CartPole-v1 --learning-starts 100", "ppo has no option --learning-starts. It has nothing of the kind."),
    ("train ppo CartPole-v1 --anneal-lr", "ppo has no option --anneal-lr. Did you mean --learning-rate-decay?"),
    ("train td3 Pendulum-v1 --cuda", "td3 has no option --cuda. Did you mean --device?"),
    ("train td3 Pendulum-v1 --lr 1e-3", "--lr. Did you mean --actor-learning-rate or --critic-learning-rate?"),
    ("train td3 Pendulum-v1 --total-timesteps=9", "no option --total-timesteps. Did you mean --steps?"),
    (
        "resume runs/a --actor-learning-rate 1e-4",
        "duetto resume has no option --actor-learning-rate. See duetto resume --help.",
    ),
    ("resume runs/a --stepps=5", "duetto resume has no option --stepps. Did you mean --steps?"),
]


@pytest.mark.parametrize(("call", "sentence"), HINTS)
def test_what_was_meant_is_named(duetto: Command, call: str, sentence: str):
    code, out, err = duetto(*call.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


BEGINNINGS = [
    ("--from nowhere", "nowhere is no run to start from: it has no checkpoints."),
    ("--rollout-steps 10 --minibatches 3", "has 80 steps, which cannot be cut into 3 equal minibatches"),
    ("--rollout-steps 10 --minibatches 3 --seeds 0,1", "has 80 steps, which cannot be cut into 3 equal minibatches"),
    ("--from nowhere --seeds 0,1", "nowhere is no run to start from: it has no checkpoints."),
]


@pytest.mark.parametrize(("options", "sentence"), BEGINNINGS)
def test_a_dry_run_sees_what_a_run_would_see(duetto: Command, options: str, sentence: str):
    code, out, err = duetto(*f"train ppo CartPole-v1 --dry-run {options}".split())
    assert (code, out) == (2, "")
    assert sentence in err


MISTAKE = """
from dataclasses import dataclass
import duetto

@dataclass(frozen=True)
class Mine(duetto.TD3):
    def update(self, learner, batch, noise, phase):
        raise ValueError("boom\\nand more")
"""


def test_a_mistake_in_ones_own_file_is_named_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MISTAKE)
    with pytest.raises(SystemExit, match="1"):
        main(["train", "mine.py:Mine", "Pendulum-v1", "--steps", "40", *SMALL])
    err = capsys.readouterr().err
    assert "Traceback" in err  # whole, for what is not the file's fault
    last = f"duetto: {tmp_path}/mine.py, line 8, in update: ValueError: boom"
    assert err.splitlines()[-1] == last


def test_a_film_is_suggested_where_there_can_be_one(duetto: Command, tmp_path: Path):
    (tmp_path / "blind.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
        "class Blind(PendulumEnv):\n    metadata = {'render_modes': []}\n"
        "    def __init__(self, render_mode=None):\n        super().__init__()\n"
        "def make(render_mode=None):\n    return gymnasium.wrappers.TimeLimit(Blind(), 20)\n"
    )
    assert "See it: duetto video" in duetto("train", "td3", "Pendulum-v1", "--steps", "20", *SMALL).out
    code, out, _ = duetto("train", "td3", f"{tmp_path}/blind.py:make", "--steps", "20", *SMALL)
    assert (code, "duetto video" in out) == (0, False)


def test_a_class_in_a_file_is_named_by_the_file(duetto: Command, tmp_path: Path):
    (tmp_path / "mine.py").write_text("import gymnasium\nclass Fine(gymnasium.Env): pass\n")
    code, _, err = duetto("train", "td3", "mine:Fine", "--steps", "10")
    assert (code, "for a file, write ./FILE.py:CLASS." in err) == (2, True)
