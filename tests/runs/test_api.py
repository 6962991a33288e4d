"""`duetto.train` as a Python user calls it: by name, with presets, with a display, and what is refused."""

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
def test_by_name_it_has_the_preset_of_the_command_line(tmp_path: Path, algorithm: Any):
    run = duetto.train(algorithm, "Pendulum-v1", runs_dir=tmp_path, **QUICK)
    name, preset = choose("td3", "Pendulum-v1", None)
    assert run.config.preset == name == "Pendulum-v1"
    assert run.config.algorithm == duetto.TD3(**preset.algorithm | SMALL)
    run = duetto.train(algorithm, "Pendulum-v1", preset="default", runs_dir=tmp_path, **QUICK)
    assert run.config.algorithm == duetto.TD3(**SMALL)
    assert (run.config.preset, run.config.run.steps) == ("default", 20)


def test_an_object_is_taken_as_it_is(tmp_path: Path):
    run = duetto.train(duetto.TD3(**SMALL), "Pendulum-v1", runs_dir=tmp_path, **OPTIONS | {"steps": 2})
    assert (run.config.preset, run.config.algorithm) == ("default", duetto.TD3(**SMALL))


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        (duetto.TD3(), {"preset": "paper"}, "A preset is for an algorithm that is named: duetto.train('td3', ..., pre"),
        ("td4", {}, "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ("td3", {"preset": "papr"}, "td3 has no preset 'papr'."),
        ("td3", {"lr": 1}, "train has no option 'lr'. Did you mean 'actor_learning_rate' or 'critic_learning_rate'?"),
        (duetto.TD3(), {"total_timesteps": 9}, "train has no option 'total_timesteps'. Did you mean 'steps'?"),
        (duetto.TD3(), {"tau": 9}, "train has no option 'tau'. It is a hyper-parameter: duetto.TD3(tau=...)."),
        (duetto.TD3(), {"n_step": 9}, "train has no option 'n_step'. It is a hyper-parameter: duetto.TD3(n_step=...)."),
        ("td3", {"callback": print}, "train has no option 'callback'. Did you mean 'callbacks'?"),
        ("td3", {"progress_bar": True}, "train has no option 'progress_bar'. Did you mean 'progress'?"),
        (duetto.TD3(), {"n_envs": 4}, "train has no option 'n_envs'. Did you mean 'num_envs'?"),
        ("td3", {"xyzzy": 1}, "train has no option 'xyzzy'. It has: steps, "),
        ("td3", {"seedz": 3}, "train has no option 'seedz'. Did you mean 'seed'?"),
        (123, {}, "algorithm is 123; it must be a name, such as 'td3', or an algorithm: duetto.TD3()."),
        (
            "td3",
            {"seeds": 0},
            "seeds is 0; it must be how many, 5, or which: 0-4, or 0,3,9, each once.",
        ),
        ("td3", {"tau": 9.0}, "tau is 9.0; it must be at least 0 and at most 1."),
    ],
)
def test_mistakes(tmp_path: Path, algorithm: Any, options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError) as refusal:
        duetto.train(algorithm, "Pendulum-v1", runs_dir=tmp_path, **options)
    assert str(refusal.value).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_on_a_terminal_it_shows_what_the_command_line_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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


def test_elsewhere_nothing_is_shown_and_notices_are_logged(
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


class Own:
    """A network, as far as anybody looks."""


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize(
    ("name", "field"), [("td3", "actor_network"), ("sac", "critic_network"), ("ppo", "agent_network")]
)
def test_a_network_of_one_s_own_has_no_recurrent_layers(tmp_path: Path, backend: str, name: str, field: str):
    """It is refused before anything is written: what learns from sequences would fail in the first step or update."""
    with pytest.raises(UsageError, match=rf"{name}'s {field.partition('_')[0]} is a custom network, .* recurrent"):
        duetto.train(
            name,
            "Pendulum-v1",
            runs_dir=tmp_path / "runs",
            steps=20,
            backend=backend,
            device="cpu",
            recurrent="lstm",
            **{field: CustomNetwork(Own, Own)},
            **({"minibatches": 1} if name == "ppo" else {}),  # else that is wrong, too
        )
    assert list(tmp_path.glob("runs/*")) == []
