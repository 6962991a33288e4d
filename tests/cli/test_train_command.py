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
from duetto.presets import Preset, presets
from duetto.runs.run import Run
from duetto.storage import safe_yaml
from duetto.tools.cli import COMMANDS
from duetto.tools.cli.options import parse_options
from duetto.training.trainer import Trainer


def test_it_trains_and_says_where_and_what_next(train: Command, tmp_path: Path):
    code, out, err = train()
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[:2] == [
        "td3 on Pendulum-v1, torch on cpu, seed 0, preset Pendulum-v1, 60 steps",
        "runs/td3-Pendulum-v1-s0/",
    ]
    assert lines[2].startswith("step         0  evaluation -")
    assert lines[-3].startswith("Last evaluation: -")
    assert lines[-2].startswith("60 steps and 40 updates in 0:00:0")
    assert lines[-1] == "See it: duetto video runs/td3-Pendulum-v1-s0"
    run = Run(tmp_path / "runs" / "td3-Pendulum-v1-s0")
    assert run.agent().step == 60
    assert [row["step"] for row in run.evaluations()] == [0, 40, 60]


def test_the_installed_command_itself(tmp_path: Path):
    program = Path(sys.executable).with_name("duetto")
    command = [str(program), "train", "ddpg", "Pendulum-v1", "--steps", "40", *SMALL]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert Run(tmp_path / "runs" / "ddpg-Pendulum-v1-s0").config.command == " ".join(["duetto", *command[1:]])


def test_a_folder_that_is_moved_while_it_trains(
    train: Command, duetto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint = Trainer.checkpoint

    def then_move(trainer: Trainer) -> Path:
        path = checkpoint(trainer)
        trainer.folder.rename("runs/moved")
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "checkpoint", then_move)
        code, out, err = train()
    assert code == 1
    assert "See it" not in out
    assert err.startswith(
        f"duetto: The checkpoint at step 60 could not be written to {tmp_path}/runs/td3-Pendulum-v1-s0/checkpoints: No "
        "such file or directory."
    )
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["moved"]
    assert duetto("resume", "runs/moved").code == 0


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_every_option_of_a_run_reaches_it(train: Command, tmp_path: Path, backend: str):
    options = "--seed 5 --num-envs 2 --precision bf16 --threads 2 --evaluate-every 0 --runs-dir there --name mine"
    code, _, err = train(
        *options.split(),
        "--vectorization",
        "sync",
        "--worker-timeout",
        "45",
        "--backend",
        backend,
        "--keep",
        "3",
    )
    assert (code, err) == (0, "")
    config = Run(tmp_path / "there" / "mine").config
    assert vars(config.run) == {
        "steps": 60,
        "seed": 5,
        "backend": backend,
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
        ("--replay-capacity 1e6", "replay_capacity", 1_000_000),
        ("--hidden 1e2 64", "hidden", [100, 64]),
        ("--hidden 64,32", "hidden", [64, 32]),
        ("--hidden=(64,32)", "hidden", [64, 32]),
        ("--critic-hidden [64, 32] --steps 9", "critic_hidden", [64, 32]),
        ("--actor-learning-rate 1e-3", "actor_learning_rate", 1e-3),
    ],
)
def test_numbers_may_be_written_in_several_ways(duetto: Command, given: str, option: str, value: object):
    code, out, _ = duetto("train", "td3", "Pendulum-v1", *given.split(), "--dry-run")
    assert code == 0
    planned = yaml.safe_load(out)
    assert (planned["algorithm"] | planned["run"])[option] == value


@pytest.mark.parametrize("number", ["1.5e0", "1e-3", "1.5", "inf"])
def test_a_fraction_is_no_whole_number(duetto: Command, number: str):
    code, _, err = duetto("train", "td3", "Pendulum-v1", "--steps", number)
    assert (code, err) == (2, f"duetto: --steps is {number!r}; it must be a whole number.\n")


OTHERS = {
    "value_range": (-4.0, 4.0),
    "hidden": (8, 8),
    "target_noise_clip": (-0.25, 0.75),
    "rollout_steps": 30,
    "minibatches": 3,  # of 10 steps each
}
# They change what the others need, or need what these change.
APART = {"recurrent", "demonstrations", "share_by_priority", "hindsight"}


def another(algorithm: Any, field: str) -> Any:
    """A value that is not the default."""
    default, hint = getattr(algorithm, field), get_type_hints(type(algorithm), include_extras=True)[field]
    if field in OTHERS:
        return OTHERS[field]
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
def needed(tmp_path: Path) -> Callable[[str], list[str]]:
    """The options without which an algorithm does not start: demonstrations, of an episode of CartPole."""

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
def test_every_hyper_parameter_can_be_set(
    train: Command, tmp_path: Path, name: str, needed: Callable[[str], list[str]]
):
    algorithm, environment = ALGORITHMS[name](), environment_for(name)
    wanted = {
        field: another(algorithm, field)
        for field in algorithm.options()
        if not field.endswith("_network") and field not in APART and algorithm.alternatives.get(field, ()) is not None
    }
    if algorithm.recurrent != "none":  # it is refused then
        wanted.pop("train_at_episode_end", None)
    arguments: list[str] = []
    for field, value in wanted.items():
        option = field.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{option}" if value else f"--no-{option}")
        else:
            arguments += [f"--{option}", *map(str, value if isinstance(value, tuple) else [value])]
    options = ["--preset", "default", "--evaluate-every", "0", *arguments, *needed(name)]
    code, _, err = train(*options, algorithm=name, environment=environment)
    assert (code, err) == (0, "")
    used = Run(tmp_path / "runs" / f"{name}-{environment}-s0").config.algorithm
    assert {field: getattr(used, field) for field in wanted} == wanted
    assert all(value != getattr(algorithm, field) for field, value in wanted.items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_recurrence_can_be_chosen(train: Command, tmp_path: Path, name: str, needed: Callable[[str], list[str]]):
    others = ["--minibatches", "1"] if name == "ppo" else ["--burn-in", "2", "--unroll", "4", "--overlap", "2"]
    options = ["--preset", "default", "--recurrent", "gru", "--recurrent-size", "4", "--name", "gru", *others]
    options += needed(name)
    code, _, err = train(*options, algorithm=name, environment=environment_for(name))
    assert (code, err) == (0, "")
    used = Run(tmp_path / "runs" / "gru").config.algorithm
    assert (used.recurrent, used.recurrent_size) == ("gru", 4)


# ---------------------------------------------------------------------------------------------------- presets
@pytest.mark.parametrize(
    ("words", "preset", "options"),
    [
        ("Pendulum-v1", "Pendulum-v1", presets("td3")["Pendulum-v1"].algorithm | {"discount": 0.98}),
        ("--steps 1 Pendulum-v1", "Pendulum-v1", {"discount": 0.98}),
        ("Pendulum-v1 --discount 0.5", "Pendulum-v1", {"discount": 0.5, "batch_size": 128}),
        ("Pendulum-v1 --preset=author", "author", {"discount": 0.99, "actor_learning_rate": 3e-4}),
        ("Pendulum-v1 --preset author --policy-delay 3", "author", {"random_steps": 25_000, "policy_delay": 3}),
        ("Pendulum-v1 --preset default", "default", {"discount": 0.99}),
        ("MountainCarContinuous-v0", "default", {"discount": 0.99}),
    ],
)
def test_the_preset_and_options_that_win_over_it(duetto: Command, words: str, preset: str, options: dict[str, Any]):
    used = yaml.safe_load(duetto("train", "td3", *words.split(), "--dry-run").out)
    assert used["preset"] == preset
    assert used["algorithm"].items() >= options.items()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ([], {"g": 9.0, "max_episode_steps": 50}),
        (["g=1e1", "max_episode_steps=20"], {"g": 10.0, "max_episode_steps": 20}),
        (["max_episode_steps=null"], {"g": 9.0, "max_episode_steps": None}),
    ],
)
def test_options_of_the_environment_are_merged_over_the_presets(
    duetto: Command, monkeypatch: pytest.MonkeyPatch, given: list[str], options: dict[str, Any]
):
    preset = Preset(environment={"g": 9.0, "max_episode_steps": 50})
    monkeypatch.setattr("duetto.runs.spec.choose", lambda *_: ("mine", preset))
    planned = duetto("train", "ppo", "Pendulum-v1", "--dry-run", *(["--environment-options", *given] if given else []))
    assert yaml.safe_load(planned.out)["environment"]["options"] == options


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["td4", "Pendulum-v1"], "There is no algorithm 'td4'. Did you mean 'td3'?"),
        (["zzz", "Pendulum-v1"], f"There is no algorithm 'zzz'. There are: {', '.join(ALGORITHMS)}."),
        (["TD3x", "Pendulum-v1"], "There is no algorithm 'TD3x'. Did you mean 'td3'?"),
        (
            ["td3", "Pendulun-v1"],
            "There is no environment Pendulun-v1 (Environment `Pendulun` doesn't",
        ),
        (["td3", "CartPole-v1"], "td3 needs a continuous action space (Box); CartPole-v1 has Discrete(2)."),
        (["td3", "Pendulum-v1", "--preset", "autor"], "td3 has no preset 'autor'. Did you mean 'author'?"),
        (["ddpg", "Pendulum-v1", "--preset", "zzz"], "ddpg has no preset 'zzz'. It has: default, paper, skrl"),
        (["td3", "Pendulum-v1", "--discount", "1.5"], "discount is 1.5; it must be at least 0 and at most 1."),
        (["td3", "Pendulum-v1", "--steps", "0"], "steps is 0; it must be at least 1."),
        (["td3", "Pendulum-v1", "--hidden", "32", "0"], "hidden is (32, 0); it must be at least 1."),
        (["td3", "Pendulum-v1", "--name", "a/b"], "'a/b' cannot be a run's name"),
        (["td3", "Pendulum-v1", "--name", ""], "'' cannot be a run's name"),
        (["td3", "Pendulum-v1", "--runs-dir", "/proc/no"], "/proc/no/td3-Pendulum-v1-s0 cannot be made"),
        (
            ["td3", "Pendulum-v1", "--environment-options", "g=9", "g=10"],
            "--environment-options cannot read 'g=10'. Give KEY=VALUE, each key once",
        ),
        (["td3", "Pendulum-v1", "--environment-options", "=3"], "--environment-options cannot read '=3'."),
        (["td3", "Pendulum-v1", "--environment-options", "a=[1"], "--environment-options cannot read 'a=[1'"),
        (
            ["ppo", "CartPole-v1", "--minibatches", "256"],
            "256 minibatches of 256 steps have one step each. Choose fewer",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_code_2(duetto: Command, tmp_path: Path, arguments: list[str], sentence: str):
    code, out, err = duetto("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"duetto: {sentence}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["td3", "Pendulum-v1", "--stepz", "5"], ["duetto train td3 has no option --stepz. Did you mean --steps?"]),
        (["td3", "Pendulum-v1", "--polcy-delay", "5"], ["has no option --polcy-delay. Did you mean --policy-delay?"]),
        (["td3", "Pendulum-v1", "--steps", "many"], ["--steps is 'many'; it must be a whole number."]),
        (["td3", "Pendulum-v1", "--backend", "tf"], ["--backend is 'tf'; it must be auto or torch or jax."]),
        (["td3"], ["duetto train td3 needs ENVIRONMENT."]),
        (["td3", "--steps", "5"], ["duetto train td3 needs ENVIRONMENT."]),
        (["td3", "Pendulum-v1", "--policy-delay"], ["--policy-delay needs a value: a whole number."]),
        (
            ["td3", "Pendulum-v1", "--normalize-observations"],
            ["--normalize-observations needs a value: off or collected or sampled."],
        ),
        (["ddpg", "Pendulum-v1", "--policy-delay", "2"], ["ddpg has no option --policy-delay."]),
        (["td3", "Pendulum-v1", "--environment-options", "gravitation=3"], ["gravitation"]),
    ],
)
def test_wrong_options_are_named_with_the_nearest_and_code_2(
    duetto: Command, tmp_path: Path, arguments: list[str], words: list[str]
):
    code, out, err = duetto("train", *arguments)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "near"), [("trian", "train"), ("eval", "evaluate"), ("zzz", None)])
def test_unknown_commands(duetto: Command, command: str, near: str | None):
    hint = f"Did you mean '{near}'?" if near else f"There are: {', '.join(COMMANDS)}."
    assert duetto(command) == (2, "", f"duetto: There is no command '{command}'. {hint}\n")


def test_values_of_environment_options_are_read_as_yaml_does():
    """What stands between quotes is text."""
    read = parse_options(("a=1e-3", "b='10'", 'c="007"', "d=nan", "e=[1e-3, x]", "f=true", "g=-2.5E+1"))
    assert read == {"a": 0.001, "b": "10", "c": "007", "d": "nan", "e": [0.001, "x"], "f": True, "g": -25.0}
    assert parse_options(("a='1e-3'", "b=['1e-3']")) == {"a": "1e-3", "b": ["1e-3"]}


TEXTS = ["on", "Off", "yes", "n", "1_000", "1:30", "0b1", "2001-01-01", "=", "True-ish", "1e", "+0x1", "1-1"]
VALUES = {
    "010": 10,
    "0o14": 12,
    "0x1F": 31,
    "1e3": 1000.0,
    "-.5": -0.5,
    "1.": 1.0,
    "+.Inf": np.inf,
    "TRUE": True,
    "~": None,
    "": None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_yaml_1_2_is_a_text(text: str):
    """YAML 1.1 took on for True, 1_000 for 1000 and 1:30 for 90."""
    assert parse_options((f"a={text}",)) == {"a": text}


@pytest.mark.parametrize("text", VALUES)
def test_values_of_yaml_1_2(text: str):
    read = parse_options((f"a={text}",))["a"]
    assert (read, type(read)) == (VALUES[text], type(VALUES[text]))


def test_configurations_come_back_as_they_were_written():
    """Texts that an older YAML takes for something else are between quotes, so that other readers agree."""
    values = {"texts": [*TEXTS, *VALUES, "null", ".nan", "<<", "nan"], "numbers": [10, 1e-5, 1e22, -np.inf, True, None]}
    written = safe_yaml.to_yaml(values)
    assert safe_yaml.parse(written) == values
    assert safe_yaml.parse("{a: &x {b: on}, c: {<<: *x, d: 0.1}}") == {"a": {"b": "on"}, "c": {"b": "on", "d": 0.1}}
    assert yaml.safe_load(safe_yaml.to_yaml(["on", "1_000", "1:30"])) == ["on", "1_000", "1:30"]


def test_an_option_that_takes_several_values_may_be_repeated(duetto: Command):
    given = ("--environment-options", "g=9", "--environment_options=max_episode_steps=50")
    planned = yaml.safe_load(duetto("train", "td3", "Pendulum-v1", *given, "--dry-run").out)
    assert planned["environment"]["options"] == {"g": 9, "max_episode_steps": 50}
