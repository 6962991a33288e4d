"""Error messages suggest the right option for unknown ones, such as those of other libraries."""

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
    ("train ppo CartPole-v1 --learning-starts 100", "ppo has no option --learning-starts. It has no similar option."),
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
def test_unknown_option_error_suggests_an_option(duetto: Command, call: str, sentence: str):
    code, out, err = duetto(*call.split())
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


START_ERRORS = [
    ("--from nowhere", "nowhere is no run to start from: it has no checkpoints."),
    ("--rollout-steps 10 --minibatches 3 --seeds 0,1", "has 80 steps, which cannot be cut into 3 equal minibatches"),
]


@pytest.mark.parametrize(("options", "sentence"), START_ERRORS)
def test_dry_run_reports_errors_of_the_run(duetto: Command, options: str, sentence: str):
    code, out, err = duetto(*f"train ppo CartPole-v1 --dry-run {options}".split())
    assert (code, out) == (2, "")
    assert sentence in err


RAISING_ALGORITHM = """
from dataclasses import dataclass
import duetto

@dataclass(frozen=True)
class Mine(duetto.TD3):
    def update(self, learner, batch, noise, phase):
        raise ValueError("boom\\nand more")
"""


def test_error_in_user_file_ends_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RAISING_ALGORITHM)
    with pytest.raises(SystemExit, match="1"):
        main(["train", "mine.py:Mine", "Pendulum-v1", "--steps", "40", *SMALL])
    err = capsys.readouterr().err
    assert "Traceback" in err  # the whole traceback, in case the cause is elsewhere
    last = f"duetto: {tmp_path}/mine.py, line 8, in update: ValueError: boom"
    assert err.splitlines()[-1] == last
