"""Shell completion, asked of the shell itself."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import subprocess

import pytest
from commands import Command

from duetto.algorithms import TD3
from duetto.cli import COMMANDS
from duetto.cli.train import OWN_OPTIONS, _command
from duetto.storage.config import RunOptions

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="what bash completes is asked of bash itself")


def completed(script: str, *words: str) -> list[str]:
    asked = (
        f'{script}\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _duetto; echo "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.split()


def test_bash_completes(duetto: Command, tmp_path):
    code, script, err = duetto("completion", "bash")
    assert (code, err) == (0, "")
    assert completed(script, "duetto", "re") == ["resume", "report"]
    assert set(completed(script, "duetto", "")) == set(COMMANDS)
    assert completed(script, "duetto", "train", "td") == ["td3"]
    assert completed(script, "duetto", "train", "td3", "HalfC") == ["HalfCheetah-v5", "HalfCheetahBulletEnv-v0"]
    assert completed(script, "duetto", "train", "td3", "Pendulum-v1", "--policy-d") == ["--policy-delay"]
    assert completed(script, "duetto", "train", "ppo", "CartPole-v1", "--policy-d") == []
    assert completed(script, "duetto", "tune", "td3", "Pendulum-v1", "--search") == ["--search", "--search-only"]
    assert completed(script, "duetto", "tune", "td3", "Pendulum-v1", "--policy-d") == ["--policy-delay"]
    assert completed(script, "duetto", "train", "td3", "Pendulum-v1", "--search") == []
    assert completed(script, "duetto", "sweep", "td3,sac", "Pendulum-v1", "--policy-d") == ["--policy-delay"]
    assert completed(script, "duetto", "sweep", "td3", "Pendulum-v1", "--seed") == ["--seeds"]  # the other is refused
    for command in ("train", "tune"):
        assert set(completed(script, "duetto", command, "td3", "Pendulum-v1", "--seed")) == {"--seed", "--seeds"}
    assert completed(script, "duetto", "list", "pre") == ["presets"]
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    assert completed(script, "duetto", "resume", str(tmp_path / "runs" / "mi")) == [str(tmp_path / "runs" / "mine")]


def test_zsh_gets_the_same_through_its_own_bridge(duetto: Command):
    bash, zsh = (duetto("completion", shell).out for shell in ("bash", "zsh"))
    assert zsh == f"autoload -U +X bashcompinit && bashcompinit\n{bash}"


def test_it_knows_every_option_of_the_command():
    fields = {field.name for field in dataclasses.fields(_command(TD3, TD3(), RunOptions()))}
    assert {name.replace("from_run", "from") for name in fields} - {"environment", "run", "hyperparameters"} == (
        set(OWN_OPTIONS) - {"config"}
    )
