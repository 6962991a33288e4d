"""config.yaml: options, atomic writes, error messages, and the history of a run."""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fake_disk import FullOS
from line_environment import Line
from small_runs import StopAt, assert_same, small, train

from duetto.algorithms import ALGORITHMS
from duetto.environments import VecEnv
from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.networks.specs import CustomNetwork
from duetto.runs.run import Run, start
from duetto.runs.spec import RunSpec
from duetto.storage import atomic_io, reproducibility
from duetto.storage.config import Config, Event, History, RunOptions, command_line
from duetto.storage.safe_yaml import read_yaml
from duetto.tools.plot.curves import curves
from duetto.training import checkpoints


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def save_config(path: Path, **changes: Any) -> dict[str, Any]:
    Config(small(), "Pendulum-v1", RunOptions(backend="torch", device="cpu"), **changes).save(path)
    return yaml.safe_load(path.read_text("utf-8"))


def write_changed_config(path: Path, where: str, value: Any) -> None:
    """Write the file with one changed key, such as "run.steps"."""
    values = save_config(path)
    *outer, key = where.split(".")
    inner = values
    for name in outer:
        inner = inner[name]
    inner[key] = value
    path.write_text(yaml.safe_dump(values), "utf-8")


CHANGED = {"prioritized": True, "actor_learning_rate": 3e-4, "n_step": 3, "clip_value": True, "epochs": 3}
CHANGED |= {"learning_rate": 3e-3, "learning_rate_decay": "linear", "target_noise_clip": (-0.25, 0.5), "hidden": ()}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_config_round_trip_keeps_every_option(path: Path, name: str):
    changed = {field: value for field, value in CHANGED.items() if field in ALGORITHMS[name].options()}
    algorithm = small(name, **changed)
    assert len(changed) > 3
    run = RunOptions(steps=77, seed=5, backend="jax", device="cpu", num_envs=2, log_every=3)
    config = Config(algorithm, "Pendulum-v1", run, True, {"g": 9.0, "list": [1]}, "author", "a command", {"numpy": "2"})
    config.save(path)
    assert Config.load(path) == config
    values = yaml.safe_load(path.read_text("utf-8"))
    assert list(values["algorithm"]) == ["name", *algorithm.options()]
    assert list(values["run"]) == [field.name for field in dataclasses.fields(RunOptions)]


def test_run_can_be_repeated_from_its_config(tmp_path: Path):
    algorithm = small(learning_rate_decay="linear", exploration="ou", target_noise_clip=(-0.3, 0.4))
    options = {"seed": 4, "environment_options": {"g": 8.0, "max_episode_steps": 30}, "num_envs": 2}
    first = train(tmp_path / "first", algorithm, **options)
    config = Config.load(first.path / "config.yaml")
    options, again = config.environment_options, tmp_path / "again"
    spec = RunSpec(config.algorithm, config.environment, config.run, environment_options=options, runs_dir=again)
    again = start(spec)
    assert_same(first, again)
    assert Config.load(again.path / "config.yaml") == config


def test_config_records_the_command_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/duetto", "train", "td3", "My Env-v0", "--hidden", "32", "32"])
    values = yaml.safe_load((train(tmp_path, steps=1).path / "config.yaml").read_text("utf-8"))
    assert values["command"] == command_line() == "duetto train td3 'My Env-v0' --hidden 32 32"
    assert values["run"]["backend"] == "torch"
    assert {"python", "platform", "duetto", "numpy", "gymnasium"} <= values["versions"].keys()
    assert values["versions"]["numpy"] == np.__version__


def test_options_unsupported_by_yaml_are_refused_before_writing(tmp_path: Path):
    with pytest.raises(UsageError, match=r"cannot be written to its config.yaml \((?s:.*)object(?s:.*)factory"):
        train(tmp_path / "runs", environment=Line, environment_options={"render_mode": object()})
    assert not (tmp_path / "runs").exists()


def test_config_is_written_atomically(path: Path, monkeypatch: pytest.MonkeyPatch):
    save_config(path)
    before = path.read_bytes()
    monkeypatch.setattr(atomic_io, "os", FullOS(room=0))
    with pytest.raises(DuettoError, match=r"config.yaml cannot be written: No space left on device"):
        save_config(path, preset="other")
    assert path.read_bytes() == before


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("where", "value", "sentence"),
    [
        ("algorithm.learning_start", 5, "the key algorithm.learning_start is unknown. Did you mean 'learning_starts'?"),
        ("presets", "x", "the key presets is unknown. Did you mean 'preset'?"),
        ("environment.options", True, "environment.options is True, not a dict"),
        ("environment.options", {1: 2}, "environment.options has 1, which cannot be the name of an option. Remove it."),
        ("format", 2, "it has format 2, and this Duetto reads 1."),
        ("preset", 5, "preset is 5, not a str"),
        ("from", "elsewhere", "from is 'elsewhere', not a dict"),
        ("environment.remakeable", "x", "environment.remakeable is 'x', not a bool"),
        ("algorithm.name", "td4", "there is no algorithm 'td4'. Did you mean 'td3'?"),
        ("algorithm.discount", 1.5, "discount is 1.5; it must be at least 0 and at most 1."),
        ("algorithm.exploration", "pink", "exploration is 'pink'; it must be one of gaussian, ou, none."),
        ("run.steps", 0, "steps is 0; it must be at least 1."),
    ],
)
def test_mistakes_in_config_name_file_and_key(path: Path, where: str, value: Any, sentence: str):
    write_changed_config(path, where, value)
    with pytest.raises(UsageError, match="^" + re.escape(f"{path}: {sentence}")):
        Config.load(path)


@pytest.mark.parametrize("content", [b"", b"- 1", b"text", b"a: [", b"\xff\xfe", pickle.dumps({"a": 1}), b"run: 5"])
def test_malformed_config_is_an_error(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(DuettoError, match=re.escape(str(path))):
        Config.load(path)


def test_yaml_objects_in_config_run_no_code(path: Path, tmp_path: Path):
    path.write_text(f"!!python/object/apply:os.system ['touch {tmp_path}/ran']")
    with pytest.raises(CheckpointError):
        Config.load(path)
    assert not (tmp_path / "ran").exists()


def test_folder_without_config_is_no_run_folder(tmp_path: Path):
    with pytest.raises(UsageError, match=rf"^{re.escape(str(tmp_path))} is no run folder: it has no config.yaml\."):
        Config.load(tmp_path / "config.yaml")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a file that cannot be read")
def test_config_without_read_permission_is_an_error(path: Path):
    save_config(path)
    path.chmod(0)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Config.load(path)


class Net:
    """A network class, which the config records by name."""


def test_custom_networks_are_recorded_by_name_and_must_be_passed(path: Path):
    custom = CustomNetwork(torch=Net, arguments={"width": 8})
    Config(small(actor_network=custom), "Pendulum-v1", RunOptions(backend="torch", device="cpu")).save(path)
    recorded = yaml.safe_load(path.read_text("utf-8"))["algorithm"]["actor_network"]
    assert recorded == {"custom": {"torch": "Net", "jax": None, "arguments": {"width": 8}}}
    with pytest.raises(UsageError, match=r"a custom network, .*Net.* networks=\{'actor_network': CustomNetwork"):
        Config.load(path)
    assert Config.load(path, {"actor_network": custom}).algorithm == small(actor_network=custom)


# -------------------------------------------------------------- history
RATE = Event(70, "algorithm.actor_learning_rate was 0.001, is now 0.5")


def history(run: Run) -> History:
    return Config.load(run.path / "config.yaml").history


def history_sentences(run: Run) -> str:
    return " ".join(reproducibility.of_its_history(read_yaml(run.path / "config.yaml")))


def test_history_records_changed_options_and_inexact_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = train(tmp_path, steps=100, name="made", callbacks=[StopAt(70)])
    run.resume(actor_learning_rate=0.5)
    assert history(run) == History(changed=(RATE,))
    monkeypatch.setattr(checkpoints, "packages", lambda _: {"numpy": "0.1"})
    run.resume(steps=110)
    assert history(run).changed == (RATE,)
    [event] = history(run).inexact
    assert event.what.startswith("Versions or hardware changed since the checkpoint at step 100: numpy was ")
    assert history_sentences(run).startswith(f"Changed during the run: {RATE}. config.yaml has the new values")
    assert f"Not repeatable exactly: {event}" in history_sentences(run)
    # A run that had the new option from the start is another curve, although the options are equal.
    other = train(tmp_path, small(actor_learning_rate=0.5), steps=110, seed=1)
    labels = [curve.label for curve in curves([run.path, other.path])]
    assert labels == [f"td3, changed at {RATE}", "td3"]


def test_resume_drops_history_after_its_checkpoint():
    before = History((RATE, Event(90, "x")), (Event(90, "y"),))
    assert before.after_resume(80, ["z"], []) == History((RATE, Event(80, "z")), ())
    assert before.after_resume(90, ["x"], []) == before  # the resumed run was killed and is resumed again


def test_history_records_environments_lost_with_their_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, steps = VecEnv.step, []

    def losing(self: VecEnv, action: Any) -> Any:
        result = whole(self, action)
        steps.append(1)
        self.aborted = np.array([True]) if len(steps) == 7 else None
        return result

    monkeypatch.setattr(VecEnv, "step", losing)
    run = train(tmp_path, steps=20, evaluate_every=0)
    lost = Event(6, "environments lost with their actor started new episodes (1)")
    assert history(run) == History(inexact=(lost,))
    assert f"Not repeatable exactly: {lost}" in history_sentences(run)
