"""`duetto.train` in Python: algorithm names and objects, presets, output, refused arguments."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest
from line_environment import Line
from rich.console import Console
from small_runs import OPTIONS, SMALL, train

import duetto
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork
from duetto.presets import choose
from duetto.training import progress as progress_module

QUICK: dict[str, Any] = OPTIONS | SMALL | {"steps": 20, "evaluate_every": 0}


@pytest.mark.parametrize("algorithm", ["td3", duetto.TD3])
def test_algorithm_name_or_class_uses_the_environment_preset(tmp_path: Path, algorithm: Any):
    run = duetto.train(algorithm, "Pendulum-v1", runs_dir=tmp_path, **QUICK)
    name, preset = choose("td3", "Pendulum-v1", None)
    assert run.config.preset == name == "Pendulum-v1"
    assert run.config.algorithm == duetto.TD3(**preset.algorithm | SMALL)
    run = duetto.train(algorithm, "Pendulum-v1", preset="default", runs_dir=tmp_path, **QUICK)
    assert run.config.algorithm == duetto.TD3(**SMALL)
    assert (run.config.preset, run.config.run.steps) == ("default", 20)


def test_algorithm_object_uses_no_preset(tmp_path: Path):
    run = duetto.train(duetto.TD3(**SMALL), "Pendulum-v1", runs_dir=tmp_path, **OPTIONS | {"steps": 2})
    assert (run.config.preset, run.config.algorithm) == ("default", duetto.TD3(**SMALL))


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (
            duetto.TD3(),
            {"preset": "paper"},
            "An object has no preset. Pass the algorithm's name: duetto.train('td3', ..., p",
        ),
        ("td4", {}, "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ("td3", {"preset": "papr"}, "td3 has no preset 'papr'."),
        ("td3", {"lr": 1}, "train has no option 'lr'. Did you mean 'actor_learning_rate' or 'critic_learning_rate'?"),
        (duetto.TD3(), {"total_timesteps": 9}, "train has no option 'total_timesteps'. Did you mean 'steps'?"),
        (duetto.TD3(), {"tau": 9}, "train has no option 'tau'. It is a hyperparameter: duetto.TD3(tau=...)."),
        ("td3", {"xyzzy": 1}, "train has no option 'xyzzy'. It has: steps, "),
        (123, {}, "algorithm is 123; it must be a name, such as 'td3', or an algorithm: duetto.TD3()."),
        (
            "td3",
            {"seeds": 0},
            "seeds is 0; it must be a number of seeds (5), or seeds (0-4 or 0,3,9), each once.",
        ),
        ("td3", {"tau": 9.0}, "tau is 9.0; it must be at least 0 and at most 1."),
        ("td3", {"steps": 0}, "steps is 0; it must be at least 1."),
        ("td3", {"backend": "tensorflow"}, "backend is 'tensorflow'; it must be one of auto, torch, jax."),
        ("td3", {"num_envs": 0}, "num_envs is 0; it must be at least 1."),
        ("td3", {"cluster": "auto"}, "cluster is 'auto'; give duetto.Cluster(address='auto')."),
        ("td3", {"seed": -1}, "seed is -1; it must be at least 0 and at most 1e+15."),
        ("td3", {"environment_options": {"speed": 3}}, "Pendulum-v1 cannot be made with {'speed': 3}"),
        *(("td3", {"name": name}, f"{name!r} cannot be a run's name") for name in ("../up", ".hidden", "a b")),
    ],
)
def test_argument_mistakes_are_refused_before_writing(
    tmp_path: Path, algorithm: Any, options: dict[str, Any], sentence: str
):
    with pytest.raises(UsageError) as refusal:
        duetto.train(algorithm, "Pendulum-v1", runs_dir=tmp_path, **options)
    assert str(refusal.value).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_terminal_output_equals_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    console = Console(record=True, force_terminal=True, width=60, file=io.StringIO())
    monkeypatch.setattr(progress_module, "Console", lambda: console)
    run = train(tmp_path, environment=Line, steps=60)
    text = console.export_text()
    assert "td3 on Line, torch on cpu, seed 0, preset default, 60 steps" in text
    assert f"See it: duetto video {run.path}" in text
    run.resume(steps=80)
    assert "Resuming at step 60." in console.export_text()
    train(tmp_path, environment=Line, steps=60, progress=False)
    run.resume(steps=90, progress=False)
    assert console.export_text() == ""


def test_without_terminal_notices_are_logged_and_nothing_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
):
    run = train(tmp_path, environment=Line, steps=20)
    assert capfd.readouterr() == ("", "")
    [record] = caplog.records
    assert (record.name, record.levelno) == ("duetto", logging.WARNING)
    assert record.getMessage().startswith("20 steps are too few: there will be no update")
    (run.path / "config.yaml").write_text((run.path / "config.yaml").read_text().replace("tau: 0.005", "tau: 0.5"))
    duetto.load(run.path)
    assert "tau was 0.005, is now 0.5" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2


class StubNetwork:
    """A placeholder for a custom network; nothing calls it."""


@pytest.mark.parametrize(
    ("name", "field"), [("td3", "actor_network"), ("sac", "critic_network"), ("ppo", "agent_network")]
)
def test_custom_network_with_recurrent_option_is_refused(tmp_path: Path, name: str, field: str):
    """Duetto refuses it before it writes anything; otherwise the first step or update would fail."""
    with pytest.raises(UsageError, match=rf"{name}'s {field.partition('_')[0]} is a custom network, .* recurrent"):
        duetto.train(
            name,
            "Pendulum-v1",
            runs_dir=tmp_path / "runs",
            steps=20,
            recurrent="lstm",
            **{field: CustomNetwork(StubNetwork, StubNetwork)},
            **({"minibatches": 1} if name == "ppo" else {}),  # avoids a second error
        )
    assert list(tmp_path.glob("runs/*")) == []
