"""`duetto train`: from the command line to the run's folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import yaml
from commands import SMALL, Command

from duetto import demonstrations
from duetto.algorithms import ALGORITHMS
from duetto.networks.spaces import Box, Discrete
from duetto.presets import presets
from duetto.runs.run import Run
from duetto.storage import safe_yaml
from duetto.tools.cli import COMMANDS
from duetto.tools.cli.options import parse_options


def test_train_prints_folder_results_and_next_command(train: Command, tmp_path: Path):
    code, out, err = train()
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[:2] == [
        "td3 on Pendulum-v1, torch on cpu, seed 0, preset Pendulum-v1, 60 steps, random actions in the first 20",
        "runs/td3-Pendulum-v1-s0/",
    ]
    assert lines[2].startswith("step         0  evaluation -")
    assert lines[-3].startswith("Last evaluation: -")
    assert lines[-2].startswith("60 steps and 40 updates in 0:00:0")
    assert lines[-1] == "See it: duetto video runs/td3-Pendulum-v1-s0"
    run = Run(tmp_path / "runs" / "td3-Pendulum-v1-s0")
    assert run.agent().step == 60
    assert [row["step"] for row in run.evaluations()] == [0, 40, 60]


def test_installed_duetto_command_trains(tmp_path: Path):
    program = Path(sys.executable).with_name("duetto")
    command = [str(program), "train", "ddpg", "Pendulum-v1", "--steps", "40", *SMALL]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert Run(tmp_path / "runs" / "ddpg-Pendulum-v1-s0").config.command == " ".join(["duetto", *command[1:]])


def test_run_options_are_recorded_in_the_config(train: Command, tmp_path: Path):
    options = "--seed 5 --num-envs 2 --precision bf16 --threads 2 --evaluate-every 0 --runs-dir there --name mine"
    options += " --vectorization sync --worker-timeout 45 --backend jax --keep 3"
    train(*options.split()).printed()
    config = Run(tmp_path / "there" / "mine").config
    assert vars(config.run) == {
        "steps": 60,
        "seed": 5,
        "backend": "jax",
        "device": "cpu",
        "precision": "bf16",
        "threads": 2,
        "num_envs": 2,
        "vectorization": "sync",
        "worker_timeout": 45.0,
        "evaluate_every": 0,
        "evaluation_episodes": 2,
        "checkpoint_every": 30,
        "keep": 3,
        "log_every": 10,
        "schedule_steps": 0,
    }


@pytest.mark.parametrize(
    ("given", "option", "value"),
    [
        ("--steps 1e5 --seed 1", "steps", 100_000),
        ("--learning-starts=2.5E+4", "learning_starts", 25_000),
        ("--hidden 64,32", "hidden", [64, 32]),
        ("--hidden=(64,32)", "hidden", [64, 32]),
        ("--critic-hidden [64, 32] --steps 9", "critic_hidden", [64, 32]),
    ],
)
def test_option_numbers_accept_several_notations(duetto: Command, given: str, option: str, value: object):
    out = duetto("train", "td3", "Pendulum-v1", *given.split(), "--dry-run").done().out
    planned = yaml.safe_load(out)
    assert (planned["algorithm"] | planned["run"])[option] == value


OTHER_VALUES = {
    "value_range": (-4.0, 4.0),
    "hidden": (8, 8),
    "target_noise_clip": (-0.25, 0.75),
    "rollout_steps": 30,
    "minibatches": 3,  # of 10 steps each
}
# Options that other options require, or that require other options.
INTERDEPENDENT = {"recurrent", "demonstrations", "share_by_priority", "hindsight"}


def other_value(algorithm: Any, field: str) -> Any:
    """Return a value that is not the default."""
    default, hint = getattr(algorithm, field), get_type_hints(type(algorithm), include_extras=True)[field]
    if field in OTHER_VALUES:
        return OTHER_VALUES[field]
    if isinstance(default, bool):
        return not default
    if isinstance(default, str):
        return next(choice for choice in get_args(hint) if choice not in (default, "none"))
    if isinstance(default, tuple):
        return (*default, 8)
    return default + 1 if isinstance(default, int) else (default or 0.01) / 2


def environment_for(name: str) -> str:
    return "CartPole-v1" if "Discrete" in ALGORITHMS[name].actions else "Pendulum-v1"


@pytest.fixture
def required_options(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the options that an algorithm requires: demonstrations (one episode of CartPole), or none."""

    def options(name: str) -> list[str]:
        if "demonstrations" not in ALGORITHMS[name].options():
            return []
        bound = (4.8, np.inf, 0.418, np.inf)
        observation = Box((4,), "float32", tuple(-x for x in bound), bound)
        obs = np.random.default_rng(0).normal(size=(101, 4)).astype(np.float32)
        episode = demonstrations.Demonstration(obs, np.arange(100) % 2, np.ones(100, np.float32), True, False)
        about = demonstrations.Metadata("CartPole-v1", {}, "nobody", observation, Discrete(2))
        return ["--demonstrations", str(demonstrations.save(tmp_path / "demos", about, [episode]))]

    return options


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_hyperparameter_can_be_set(train: Command, name: str, required_options: Callable[[str], list[str]]):
    algorithm, environment = ALGORITHMS[name](), environment_for(name)
    wanted = {
        field: other_value(algorithm, field)
        for field in algorithm.options()
        if not field.endswith("_network") and field not in INTERDEPENDENT
    }
    if algorithm.recurrent != "none" or name in ("bc", "dqfd"):  # not allowed with recurrent networks, demonstrations
        wanted.pop("train_at_episode_end", None)
    arguments: list[str] = []
    for field, value in wanted.items():
        option = field.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{option}" if value else f"--no-{option}")
        else:
            arguments += [f"--{option}", *map(str, value if isinstance(value, tuple) else [value])]
    plan = ["--preset", "default", "--dry-run", *required_options(name)]
    call = {"algorithm": name, "environment": environment}
    used = yaml.safe_load(train(*plan, *arguments, **call).printed())["algorithm"]
    assert {field: used[field] for field in wanted} == {field: as_plain(value) for field, value in wanted.items()}
    assert all(value != getattr(algorithm, field) for field, value in wanted.items())
    sizes = ["--minibatches", "1"] if name == "ppo" else ["--burn-in", "2", "--unroll", "4", "--overlap", "2"]
    recurrent = yaml.safe_load(train(*plan, *sizes, "--recurrent", "gru", "--recurrent-size", "4", **call).printed())
    assert (recurrent["algorithm"]["recurrent"], recurrent["algorithm"]["recurrent_size"]) == ("gru", 4)


def as_plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# ---------------------------------------------------------------------------------------------------- presets
@pytest.mark.parametrize(
    ("words", "preset", "options"),
    [
        ("Pendulum-v1", "Pendulum-v1", presets("td3")["Pendulum-v1"].algorithm | {"discount": 0.98}),
        ("Pendulum-v1 --discount 0.5", "Pendulum-v1", {"discount": 0.5, "batch_size": 128}),
        ("Pendulum-v1 --preset author --policy-delay 3", "author", {"random_steps": 25_000, "policy_delay": 3}),
        ("Pendulum-v1 --preset default", "default", {"discount": 0.99}),
        ("MountainCarContinuous-v0", "default", {"discount": 0.99}),
    ],
)
def test_options_override_the_preset(duetto: Command, words: str, preset: str, options: dict[str, Any]):
    used = yaml.safe_load(duetto("train", "td3", *words.split(), "--dry-run").out)
    assert used["preset"] == preset
    assert used["algorithm"].items() >= options.items()


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["td4", "Pendulum-v1"], "There is no algorithm 'td4'. Did you mean 'td3'?"),
        (["a2c", "Pendulum-v1"], f"There is no algorithm 'a2c'. There are: {', '.join(ALGORITHMS)}."),
        (
            ["td3", "Pendulun-v1"],
            "There is no environment Pendulun-v1. Did you mean Pendulum-v1?",
        ),
        (["td3", "CartPole-v1"], "td3 needs a continuous action space (Box); CartPole-v1 has Discrete(2)."),
        (["td3", "Pendulum-v1", "--preset", "autor"], "td3 has no preset 'autor'. Did you mean 'author'?"),
        (["ddpg", "Pendulum-v1", "--preset", "zzz"], "ddpg has no preset 'zzz'. It has: default, paper, skrl"),
        (["td3", "Pendulum-v1", "--discount", "1.5"], "discount is 1.5; it must be at least 0 and at most 1."),
        (["td3", "Pendulum-v1", "--steps", "0"], "steps is 0; it must be at least 1."),
        (["td3", "Pendulum-v1", "--name", "a/b"], "'a/b' cannot be a run's name"),
        (["td3", "Pendulum-v1", "--name", ""], "'' cannot be a run's name"),
        (["td3", "Pendulum-v1", "--runs-dir", "/proc/no"], "/proc/no/td3-Pendulum-v1-s0 cannot be made"),
        (
            ["td3", "Pendulum-v1", "--environment-options", "g=9", "g=10"],
            "--environment-options cannot read 'g=10'. Give KEY=VALUE, each key once",
        ),
        (["td3", "Pendulum-v1", "--environment-options", "a=[1"], "--environment-options cannot read 'a=[1'"),
        (
            ["ppo", "CartPole-v1", "--minibatches", "256"],
            "256 minibatches of 256 steps have one step each. Choose fewer",
        ),
        (["td3", "Pendulum-v1", "--stepz", "5"], "duetto train td3 has no option --stepz. Did you mean --steps?"),
        (["td3", "Pendulum-v1", "--steps", "1.5"], "--steps is '1.5'; it must be a whole number."),
        (["td3", "Pendulum-v1", "--backend", "tf"], "--backend is 'tf'; it must be auto or torch or jax."),
        (["td3", "--steps", "5"], "duetto train td3 needs ENVIRONMENT."),
        (["td3", "Pendulum-v1", "--policy-delay"], "--policy-delay needs a value: a whole number."),
        (
            ["td3", "Pendulum-v1", "--normalize-observations"],
            "--normalize-observations needs a value: off or collected or sampled.",
        ),
        (["ddpg", "Pendulum-v1", "--policy-delay", "2"], "duetto train ddpg has no option --policy-delay."),
    ],
)
def test_mistakes_in_train_call_exit_with_2(duetto: Command, tmp_path: Path, arguments: list[str], sentence: str):
    code, out, err = duetto("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"duetto: {sentence}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "near"), [("trian", "train"), ("eval", "evaluate"), ("zzz", None)])
def test_unknown_command_error_suggests_a_command(duetto: Command, command: str, near: str | None):
    hint = f"Did you mean '{near}'?" if near else f"There are: {', '.join(COMMANDS)}."
    assert duetto(command) == (2, "", f"duetto: There is no command '{command}'. {hint}\n")


TEXTS = ["nan", "on", "Off", "yes", "n", "1_000", "1:30", "0b1", "2001-01-01", "=", "True-ish", "1e", "+0x1", "1-1"]
VALUES = {
    "010": 10,
    "0o14": 12,
    "0x1F": 31,
    "1e3": 1000.0,
    "-2.5E+1": -25.0,
    "-.5": -0.5,
    "1.": 1.0,
    "+.Inf": np.inf,
    "TRUE": True,
    "~": None,
    "": None,
}

QUOTED = {"'10'": "10", '"007"': "007", "[1e-3, x]": [0.001, "x"], "['1e-3']": ["1e-3"]}


def test_options_are_read_as_yaml_1_2():
    """YAML 1.1 reads on as True, 1_000 as 1000 and 1:30 as 90."""
    for text, value in ({text: text for text in TEXTS} | VALUES | QUOTED).items():
        read = parse_options((f"a={text}",))["a"]
        assert (read, type(read)) == (value, type(value)), text


def test_yaml_round_trip_preserves_values():
    """Texts that YAML 1.1 reads as another type are written in quotes."""
    values = {"texts": [*TEXTS, *VALUES, "null", ".nan", "<<", "nan"], "numbers": [10, 1e-5, 1e22, -np.inf, True, None]}
    written = safe_yaml.to_yaml(values)
    assert safe_yaml.parse(written) == values
    assert safe_yaml.parse("{a: &x {b: on}, c: {<<: *x, d: 0.1}}") == {"a": {"b": "on"}, "c": {"b": "on", "d": 0.1}}
    assert yaml.safe_load(safe_yaml.to_yaml(["on", "1_000", "1:30"])) == ["on", "1_000", "1:30"]


def test_environment_options_can_be_repeated(duetto: Command):
    given = ("--environment-options", "g=9", "--environment_options=max_episode_steps=50")
    planned = yaml.safe_load(duetto("train", "td3", "Pendulum-v1", *given, "--dry-run").out)
    assert planned["environment"]["options"] == {"g": 9, "max_episode_steps": 50}
