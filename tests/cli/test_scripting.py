"""What scripts use: --json, --quiet, --dry-run, --config, --keep, and evaluations elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Command

from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.storage import reproducibility
from duetto.tools.cli import options as cli_options


def test_json_is_one_object_and_nothing_else(train: Command, duetto: Command, tmp_path: Path):
    out = train("--json").printed()
    [line] = out.splitlines()
    said = json.loads(line)
    assert (said["run"], said["step"], said["updates"]) == (f"{tmp_path}/runs/td3-Pendulum-v1-s0", 60, 40)
    assert (said["stopped"], said["notices"]) == (False, [])
    assert said["evaluation"]["step"] == 60
    assert len(said["evaluation"]["returns"]) == 2
    _, out, err = duetto("resume", said["run"], "--steps", "70", "--json")
    assert (json.loads(out)["step"], err) == (70, "")
    _, out, err = duetto("evaluate", said["run"], "--episodes", "2", "--json")
    found = json.loads(out)
    assert (found["lengths"], found["checkpoint"], err) == ([200, 200], "last", "")
    assert found["mean_return"] == pytest.approx(sum(found["returns"]) / 2)


def test_quiet_says_what_has_to_be_known_alone(train: Command, duetto: Command):
    assert train("--quiet") == (0, "", "")
    assert duetto("resume", "runs/td3-Pendulum-v1-s0", "--steps", "70", "--quiet") == (0, "", "")
    code, out, err = train("--quiet", "--steps", "10", "--name", "short")
    assert (code, err, len(out.splitlines())) == (0, "", 1)
    assert out.startswith("10 steps are too few")
    code, out, err = train("--json", "--steps", "10", "--name", "json")
    assert err == out[:0] + json.loads(out)["notices"][0] + "\n"


def test_a_dry_run_is_the_whole_configuration_and_leaves_nothing(train: Command, tmp_path: Path):
    out = train("--dry-run", "--tau", "0.25").printed()
    assert list(tmp_path.iterdir()) == []
    planned = yaml.safe_load(out)
    assert train("--tau", "0.25").code == 0
    made = yaml.safe_load((tmp_path / "runs" / "td3-Pendulum-v1-s0" / "config.yaml").read_text())
    assert {key for key in made if made[key] != planned[key]} <= {"command"}
    assert planned["algorithm"]["tau"] == 0.25


def test_a_new_run_as_another_was(duetto: Command, trained: Path, tmp_path: Path):
    config = trained / "config.yaml"
    duetto("train", "td3", "--config", config, "--seed", "3", "--tau", "0.5", "--name", "new").printed()
    new, old = Run(tmp_path / "runs" / "new").config, Run(trained).config
    assert new.algorithm == old.algorithm.with_options(tau=0.5)
    assert vars(new.run) == vars(old.run) | {"seed": 3}
    assert (new.environment, new.environment_options, new.preset) == ("Pendulum-v1", {}, "Pendulum-v1")
    code, _, _ = duetto("train", "td3", f"--config={config}", "MountainCarContinuous-v0", "--name", "other")
    assert (code, Run(tmp_path / "runs" / "other").config.environment) == (0, "MountainCarContinuous-v0")


def test_with_another_framework_threads_are_not_those_of_the_first(duetto: Command, trained: Path, tmp_path: Path):
    config = yaml.safe_load((trained / "config.yaml").read_text())
    config["run"] |= {"backend": "jax", "threads": 2}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    threads = {}
    for given in ("--backend torch", "--backend torch --threads 2", "--seed 3"):
        _, out, _ = duetto("train", "td3", "--config", tmp_path / "config.yaml", *given.split(), "--dry-run")
        threads[given] = yaml.safe_load(out)["run"]["threads"]
    assert list(threads.values()) == [1, 2, 2]


@pytest.mark.parametrize(
    ("call", "environment"),
    [
        ("td3 Pendulum-v1 --config FILE", "Pendulum-v1"),
        ("td3 --config FILE", "Pendulum-v1"),
        ("td3 --tau 0.5 --config=FILE", "Pendulum-v1"),
        ("td3 MountainCarContinuous-v0 --config FOLDER --steps 30", "MountainCarContinuous-v0"),
        ("td3 --steps 30 MountainCarContinuous-v0 --config FILE", "MountainCarContinuous-v0"),
    ],
)
def test_wherever_config_stands(duetto: Command, trained: Path, call: str, environment: str):
    words = call.replace("FILE", str(trained / "config.yaml")).replace("FOLDER", str(trained)).split()
    out = duetto("train", *words, "--dry-run").printed()
    planned, old = yaml.safe_load(out), Run(trained).config
    assert planned["environment"]["id"] == environment
    assert planned["algorithm"]["batch_size"] == old.algorithm.batch_size == 8
    assert planned["run"]["steps"] == (30 if "--steps" in words else 60)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["td3", "--config"], "--config needs a value: FILE."),
        (["td3", "--config", "nowhere"], "--config is 'nowhere'; it must be the config.yaml of a run."),
        (["sac", "--config", "{config}"], "{config}: it is of the algorithm 'td3', and SAC is 'sac'."),
        (["--config", "{config}"], "duetto train needs an algorithm first: duetto train ALGORITHM --config {config}"),
        (
            ["td3", "--config", "{config}", "--preset", "default"],
            "--config says every option already: leave --preset out.",
        ),
    ],
)
def test_mistakes_of_config(duetto: Command, trained: Path, arguments: list[str], sentence: str):
    given = [part.format(config=trained / "config.yaml") for part in arguments]
    assert duetto("train", *given) == (2, "", f"duetto: {sentence.format(config=trained / 'config.yaml')}\n")


def test_a_config_that_is_another_file_is_not_printed(duetto: Command, tmp_path: Path):
    file = tmp_path / "users"
    file.write_text("\n".join(f"user{i}:x:{i}:/home/user{i}" for i in range(99)), "utf-8")
    code, out, err = duetto("train", "td3", "--config", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"duetto: --config {file} is no config.yaml of a run: ")
    assert "user1:" in err
    assert "user9:" not in err


def test_evaluate_elsewhere_and_with_exploration(duetto: Command, trained: Path):
    quick = ("evaluate", trained, "--episodes", "1", "--json")
    plain = json.loads(duetto(*quick).out)
    changed = json.loads(duetto(*quick, "--environment-options", "max_episode_steps=50").out)
    assert (plain["lengths"], changed["lengths"]) == ([200], [50])
    same = json.loads(duetto(*quick, "--environment", "Pendulum-v1").out)
    assert same["returns"] == plain["returns"]
    noisy = json.loads(duetto(*quick, "--stochastic").out)
    assert noisy["returns"] != plain["returns"]
    assert json.loads(duetto(*quick, "--stochastic").out)["returns"] == noisy["returns"]
    code, _, err = duetto(*quick, "--environment", "CartPole-v1")
    assert code == 2
    assert err.startswith(
        "duetto: CartPole-v1 has the observation space Box((4,), float32); the agent was trained with Box((3,), "
    )


@pytest.fixture
def tuned(duetto: Command, trained: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run, and one that started with its networks."""
    first, second = shutil.copytree(trained, tmp_path / "first"), tmp_path / "runs" / "tuned"
    call = ("--from", first, "--name", "tuned", "--random-steps", "0")
    assert duetto("train", "td3", "--config", trained / "config.yaml", *call).code == 0
    return first, second


def beginning(run: Path) -> Any:
    return yaml.safe_load((run / "config.yaml").read_text()).get("from")


def test_of_a_run_with_a_beginning_config_has_it_too(duetto: Command, tuned: tuple[Path, Path]):
    first, second = tuned
    again = second.with_name("again")
    assert duetto("train", "td3", "--config", second / "config.yaml", "--name", "again").code == 0
    assert beginning(again) == beginning(second)
    assert Run(again).agent().fingerprint == Run(second).agent().fingerprint
    assert yaml.safe_load(duetto("train", "td3", "--config", second, "--dry-run").out)["from"] == beginning(second)
    # the other run has continued, and has that checkpoint still
    assert duetto("resume", first, "--steps", "80").code == 0
    assert duetto("train", "td3", "--config", second, "--name", "later").code == 0
    assert Run(second.with_name("later")).agent().fingerprint == Run(second).agent().fingerprint
    assert duetto("train", "td3", "--config", second, "--seeds", "0-1", "--name", "several").code == 0
    assert [beginning(second.with_name(f"several-s{seed}"))["step"] for seed in range(2)] == [60, 60]


def test_where_the_other_run_is_not_what_it_was_config_refuses(duetto: Command, tuned: tuple[Path, Path]):
    first, second = tuned
    moved = first.rename(first.with_name("moved"))
    code, out, err = duetto("train", "td3", "--config", second, "--name", "again")
    assert (code, out.count("step 1")) == (1, 0)
    assert f"The run started with step 60 of {first}: {first} is no run to start from" in err
    assert not second.with_name("again").exists()
    assert duetto("train", "td3", "--config", second, "--from", moved, "--name", "again").code == 0
    assert beginning(second.with_name("again"))["run"] == str(moved)
    assert Run(second.with_name("again")).agent().fingerprint == Run(second).agent().fingerprint
    shutil.copytree(moved, first)
    assert duetto("resume", first, "--steps", "150").code == 0  # of which that step is forgotten
    assert f"started with step 60 of {first}: " in duetto("train", "td3", "--config", second).err
    assert duetto("train", "td3", "--config", second, "--from", first, "--name", "other").code == 0
    assert beginning(second.with_name("other"))["step"] == 150


def test_a_strangers_config_begins_with_no_run_of_ones_own(duetto: Command, tuned: tuple[Path, Path]):
    first, second = tuned
    config = yaml.safe_load((second / "config.yaml").read_text())
    del config["signature"]
    (second / "config.yaml").write_text(yaml.safe_dump(config))
    code, _, err = duetto("train", "td3", "--config", second, "--name", "again")
    assert (code, f"copies the networks of '{first}'" in err) == (2, True)
    assert "If you trust it: --trust" in err
    assert duetto("train", "td3", "--config", second, "--trust", "--name", "trusted").code == 0
    assert duetto("train", "td3", "--config", second, "--from", first, "--name", "again").code == 0


def test_a_run_on_a_cluster_is_not_repeated_without_one(
    trained: Path, duetto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[Any] = []

    def stop(given: dict[str, Any]) -> None:
        asked.append((given["cluster"], given["mode"], given.get("actors"), given.get("block")))
        raise UsageError("no cluster is started here")

    monkeypatch.setattr(cli_options, "cluster", stop)
    values = yaml.safe_load((trained / "config.yaml").read_text())
    values["cluster"] = {"mode": "sync", "actors": 4, "block": 64}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(values))
    code, _, err = duetto("train", "td3", "--dry-run", "--config", "other.yaml")
    assert code == 2
    assert "other.yaml is of a run on a cluster, which decides its numbers. Give --cluster" in err
    for options in (("--cluster",), ("--cluster", "--mode", "async"), ("--cluster", "--actors", "4")):
        assert duetto("train", "td3", "--config", "other.yaml", *options).code == 2
    assert asked == [("here", "sync", 4, 64), ("here", "async", 4, 64), ("here", "sync", 4, 64)]
    assert reproducibility.repeat_command(values, "other.yaml") == "duetto train td3 --config other.yaml --cluster"
    assert "Cluster: it ran on Ray actors, which decide its numbers." in reproducibility.needed(values)
    assert (
        reproducibility.repeat_command(values | {"cluster": {}}, "other.yaml") == "duetto train td3 --config other.yaml"
    )
