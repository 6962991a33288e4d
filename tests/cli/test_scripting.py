"""Options for scripts: --quiet, --dry-run and --config; evaluation in another environment."""

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
from duetto.tools.cli import options as cli_options


def test_quiet_prints_only_notices(train: Command, duetto: Command):
    assert train("--quiet") == (0, "", "")
    assert duetto("resume", "runs/td3-Pendulum-v1-s0", "--steps", "70", "--quiet") == (0, "", "")
    code, out, err = train("--quiet", "--steps", "10", "--name", "short")
    assert (code, err, len(out.splitlines())) == (0, "", 1)
    assert out.startswith("10 steps are too few")
    code, out, err = train("--json", "--steps", "10", "--name", "json")
    assert err == out[:0] + json.loads(out)["notices"][0] + "\n"


def test_dry_run_prints_the_configuration_and_writes_nothing(train: Command, tmp_path: Path):
    out = train("--dry-run", "--tau", "0.25").printed()
    assert list(tmp_path.iterdir()) == []
    planned = yaml.safe_load(out)
    assert train("--tau", "0.25").code == 0
    made = yaml.safe_load((tmp_path / "runs" / "td3-Pendulum-v1-s0" / "config.yaml").read_text())
    assert {key for key in made if made[key] != planned[key]} <= {"command"}
    assert planned["algorithm"]["tau"] == 0.25


def test_config_option_repeats_options_of_a_run(duetto: Command, trained: Path, tmp_path: Path):
    config = trained / "config.yaml"
    duetto("train", "td3", "--config", config, "--seed", "3", "--tau", "0.5", "--name", "new").printed()
    new, old = Run(tmp_path / "runs" / "new").config, Run(trained).config
    assert new.algorithm == old.algorithm.with_options(tau=0.5)
    assert vars(new.run) == vars(old.run) | {"seed": 3}
    assert (new.environment, new.environment_options, new.preset) == ("Pendulum-v1", {}, "Pendulum-v1")
    code, _, _ = duetto("train", "td3", f"--config={config}", "MountainCarContinuous-v0", "--name", "other")
    assert (code, Run(tmp_path / "runs" / "other").config.environment) == (0, "MountainCarContinuous-v0")


@pytest.mark.parametrize(
    ("call", "environment"),
    [
        ("td3 Pendulum-v1 --config FILE", "Pendulum-v1"),
        ("td3 --tau 0.5 --config=FILE", "Pendulum-v1"),
        ("td3 --steps 30 MountainCarContinuous-v0 --config FILE", "MountainCarContinuous-v0"),
    ],
)
def test_config_option_works_at_any_position(duetto: Command, trained: Path, call: str, environment: str):
    words = call.replace("FILE", str(trained / "config.yaml")).split()
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
        (["sac", "--config", "{config}"], "{config}: its algorithm is 'td3', but SAC is 'sac'."),
        (["--config", "{config}"], "duetto train needs an algorithm first: duetto train ALGORITHM --config {config}"),
        (
            ["td3", "--config", "{config}", "--preset", "default"],
            "--config sets every option already. Leave --preset out.",
        ),
    ],
)
def test_mistakes_in_config_option_are_reported(duetto: Command, trained: Path, arguments: list[str], sentence: str):
    given = [part.format(config=trained / "config.yaml") for part in arguments]
    assert duetto("train", *given) == (2, "", f"duetto: {sentence.format(config=trained / 'config.yaml')}\n")


def test_error_prints_only_the_start_of_wrong_config(duetto: Command, tmp_path: Path):
    file = tmp_path / "users"
    file.write_text("\n".join(f"user{i}:x:{i}:/home/user{i}" for i in range(99)), "utf-8")
    code, out, err = duetto("train", "td3", "--config", file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"duetto: --config {file} is not the config.yaml of a run: ")
    assert "user1:" in err
    assert "user9:" not in err


def test_evaluate_in_other_environment_and_with_exploration(duetto: Command, trained: Path):
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
def run_and_finetuned(duetto: Command, trained: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a run, and a second run that started from its networks (--from)."""
    first, second = shutil.copytree(trained, tmp_path / "first"), tmp_path / "runs" / "tuned"
    call = ("--from", first, "--name", "tuned", "--random-steps", "0")
    assert duetto("train", "td3", "--config", trained / "config.yaml", *call).code == 0
    return first, second


def recorded_start(run: Path) -> Any:
    return yaml.safe_load((run / "config.yaml").read_text()).get("from")


def test_config_of_run_with_from_starts_from_same_networks(duetto: Command, run_and_finetuned: tuple[Path, Path]):
    first, second = run_and_finetuned
    assert duetto("train", "td3", "--config", second, "--seeds", "0-1", "--name", "again").code == 0
    for seed in range(2):
        assert recorded_start(second.with_name(f"again-s{seed}")) == recorded_start(second)
    moved = first.rename(first.with_name("moved"))
    code, _, err = duetto("train", "td3", "--config", second, "--name", "other")
    assert code == 1
    assert f"The run started with step 60 of {first}: {first} is no run to start from" in err
    assert not second.with_name("other").exists()
    assert duetto("train", "td3", "--config", second, "--from", moved, "--name", "other").code == 0
    assert recorded_start(second.with_name("other"))["run"] == str(moved)
    assert Run(second.with_name("other")).agent().fingerprint == Run(second).agent().fingerprint
    shutil.copytree(moved, first)
    assert duetto("resume", first, "--steps", "150").code == 0  # its checkpoint of step 60 is deleted
    assert f"started with step 60 of {first}: " in duetto("train", "td3", "--config", second).err


def test_unsigned_config_copies_networks_only_with_trust(duetto: Command, run_and_finetuned: tuple[Path, Path]):
    first, second = run_and_finetuned
    config = yaml.safe_load((second / "config.yaml").read_text())
    del config["signature"]
    (second / "config.yaml").write_text(yaml.safe_dump(config))
    code, _, err = duetto("train", "td3", "--config", second, "--name", "again")
    assert (code, f"copies the networks of '{first}'" in err) == (2, True)
    assert "If you trust it: --trust" in err
    assert duetto("train", "td3", "--config", second, "--trust", "--name", "trusted").code == 0


def test_config_of_cluster_run_requires_cluster_option(
    trained: Path, duetto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cluster_options: list[Any] = []

    def refuse_cluster(given: dict[str, Any]) -> None:
        cluster_options.append((given["cluster"], given["mode"], given.get("actors"), given.get("block")))
        raise UsageError("no cluster is started here")

    monkeypatch.setattr(cli_options, "cluster", refuse_cluster)
    values = yaml.safe_load((trained / "config.yaml").read_text())
    values["cluster"] = {"mode": "sync", "actors": 4, "block": 64}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(values))
    code, _, err = duetto("train", "td3", "--dry-run", "--config", "other.yaml")
    assert code == 2
    assert "other.yaml was on a cluster, which affects its results. Give --cluster" in err
    for options in (("--cluster",), ("--cluster", "--mode", "async"), ("--cluster", "--actors", "4")):
        assert duetto("train", "td3", "--config", "other.yaml", *options).code == 2
    assert cluster_options == [("here", "sync", 4, 64), ("here", "async", 4, 64), ("here", "sync", 4, 64)]
