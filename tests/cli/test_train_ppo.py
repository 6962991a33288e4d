"""`duetto train ppo`: its preset, the options of the environment, and its mistakes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from commands import Command

from duetto.presets import Preset
from duetto.runs.run import Run

QUICK = shlex.split("--steps 256 --evaluate-every 0 --backend torch --device cpu --threads 1")


def config(out: str) -> dict:
    folder = next(line for line in out.splitlines() if line.endswith("/"))
    return yaml.safe_load((Path(folder) / "config.yaml").read_text("utf-8"))


def test_it_trains_with_the_preset_for_classic_control(duetto: Command, tmp_path: Path):
    code, out, err = duetto("train", "ppo", "CartPole-v1", *QUICK)
    assert (code, err) == (0, "")
    assert out.startswith("ppo on CartPole-v1, torch on cpu, seed 0, preset classic, 256 steps\n")
    used = config(out)
    assert used["preset"] == "classic"
    assert used["algorithm"].items() >= {"rollout_steps": 32, "epochs": 20, "gae_lambda": 0.8, "discount": 0.98}.items()
    assert (used["run"]["num_envs"], used["run"]["steps"]) == (8, 256)
    run = Run(tmp_path / "runs" / "ppo-CartPole-v1-s0")
    assert run.agent().step == 256
    assert run.agent()._learner.backend == "torch"


def test_options_win_over_the_preset(duetto: Command):
    options = shlex.split("--num-envs 2 --rollout-steps 10 --clip-value --no-zero-biases --hidden 8")
    used = config(duetto("train", "ppo", "CartPole-v1", *QUICK, *options).out)
    wanted = {"rollout_steps": 10, "clip_value": True, "zero_biases": False, "hidden": [8], "epochs": 20}
    assert used["algorithm"].items() >= wanted.items()
    assert used["run"]["num_envs"] == 2


def test_no_preset(duetto: Command):
    options = ["--preset", "default", "--rollout-steps", "64"]
    used = config(duetto("train", "ppo", "CartPole-v1", *QUICK, *options).out)
    assert (used["preset"], used["algorithm"]["gae_lambda"], used["run"]["num_envs"]) == ("default", 0.95, 1)


# ---------------------------------------------------------------------------------------------------- environment
@pytest.fixture
def pendulum(duetto: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`duetto train ppo Pendulum-v1` with a preset that has options of the environment."""
    algorithm = {"rollout_steps": 32, "minibatches": 2, "epochs": 1, "hidden": [8]}
    preset = Preset(algorithm=algorithm, environment={"g": 9.0, "max_episode_steps": 50})
    monkeypatch.setattr("duetto.runs.spec.choose", lambda *_: ("mine", preset))
    return lambda *arguments: duetto("train", "ppo", "Pendulum-v1", *QUICK, *arguments)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ([], {"g": 9.0, "max_episode_steps": 50}),
        (["g=8.5"], {"g": 8.5, "max_episode_steps": 50}),
        (["g=1e1", "max_episode_steps=20"], {"g": 10.0, "max_episode_steps": 20}),
        (["render_mode=rgb_array"], {"g": 9.0, "max_episode_steps": 50, "render_mode": "rgb_array"}),
        (["max_episode_steps=null"], {"g": 9.0, "max_episode_steps": None}),
    ],
)
def test_options_of_the_environment_are_merged_over_the_presets(pendulum: Command, given: list[str], options: dict):
    code, out, err = pendulum(*(["--environment-options", *given] if given else []))
    assert (code, err) == (0, "")
    assert config(out)["environment"]["options"] == options


def test_they_reach_the_environment(pendulum: Command, tmp_path: Path):
    """Episodes of 20 steps, of which 256 steps hold 12."""
    assert pendulum("--environment-options", "max_episode_steps=20", "--log-every", "256").code == 0
    [line] = Run(tmp_path / "runs" / "ppo-Pendulum-v1-s0").metrics()
    assert (line["train/length"], line["train/episodes"]) == (20.0, 12)


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["CartPole-v1", "--preset", "clasic"],
            "ppo has no preset 'clasic'. Did you mean 'classic'? It has: default, w",
        ),
        (["CartPole-v1", "--clip-range", "0"], "clip_range is 0.0; it must be more than 0."),
        (
            ["CartPole-v1", "--minibatches", "7"],
            "A rollout of 32 steps in 8 environment(s) has 256 steps, which cannot",
        ),
        (["CartPole-v1", "--minibatches", "256"], "256 minibatches of 256 steps have one step each. Choose fewer"),
        (
            ["CartPole-v1", "--environment-options", "speed"],
            "--environment-options cannot read 'speed'. Give KEY=VALUE",
        ),
        (["CartPole-v1", "--environment-options", "a=[1"], "--environment-options cannot read 'a=[1'"),
    ],
)
def test_mistakes_are_one_sentence_and_code_2(duetto: Command, tmp_path: Path, arguments: list[str], sentence: str):
    code, _, err = duetto("train", "ppo", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"duetto: {sentence}")
    assert list(tmp_path.glob("runs/*")) == []


def test_an_option_that_the_environment_does_not_know(duetto: Command):
    code, _, err = duetto("train", "ppo", "CartPole-v1", *QUICK, "--environment-options", "gravitation=3")
    assert code == 2
    assert err.startswith("duetto: ")
    assert "gravitation" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["CartPole-v1", "--clip-rage", "0.1"], ["has no option --clip-rage. Did you mean --clip-range?"]),
        (["CartPole-v1", "--policy-delay", "2"], ["ppo has no option --policy-delay."]),
        (["CartPole-v1", "--epochs", "few"], ["--epochs is 'few'; it must be a whole number."]),
    ],
)
def test_wrong_options_are_named_with_the_nearest_and_code_2(duetto: Command, arguments: list[str], words: list[str]):
    code, out, err = duetto("train", "ppo", *arguments)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
