"""Shell completion, asked of the shell itself."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import Command

from duetto.cli import COMMANDS, completing, completion, demos

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


@pytest.fixture(scope="module")
def script() -> str:
    return completion.script()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("train td3 Pendulum-v1 --backend ", "auto jax torch"),
        ("train td3 Pendulum-v1 --steps 5 --backend=t", "torch"),
        ("train td3 Pendulum-v1 --preset Pend", "Pendulum-v1"),
        ("sweep td3,sac Pendulum-v1 --normalize-observations s", "sampled sampled_both"),
        ("tune td3 Pendulum-v1 --network s", "simba"),
        ("train td3 Pendulum-v1 --no-comp", "--no-compress-images"),
        ("train td3 Pendulum-v1 --track ", "mlflow trackio wandb"),
        ("train --conf", "--config"),
        ("train ./my", "./my_algorithm.py"),
        ("train ./my_algorithm.py:Mine Pendulum-v1 --backend j", "jax"),
        ("train td3 --config ./my", "./my_algorithm.py"),
        ("export runs/a --format ", "jax onnx torch"),
        ("evaluate runs/a --checkpoint ", "best last"),
        ("evaluate runs/a --environment HalfCheetah-", "HalfCheetah-v5"),
        ("evaluate runs/a --stoch", "--stochastic"),
        ("demos ", "export import inspect record seal"),
        ("demos record Pend", "Pendulum-v1"),
        ("demos record CartPole-v1 --exp", "--expert"),
        ("demos record CartPole-v1 --expert b", "bot"),
        ("demos record CartPole-v1 --expert ./my", "./my_algorithm.py"),
        ("completion ", "bash zsh"),
        ("resume runs/a --pace l", "lockstep"),
    ],
)
def test_values_and_parts(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, wanted: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_algorithm.py").touch()
    split = words.replace("=", " = ").split(" ")  # as bash does
    assert sorted(completed(script, "duetto", *split)) == wanted.split()


@pytest.mark.parametrize("command", [*sorted(set(COMMANDS) - {"demos"}), *(f"demos {part}" for part in demos.COMMANDS)])
def test_every_option_of_every_command_is_offered(duetto: Command, script: str, command: str):
    """What the parser's own help has, and nothing else."""
    words = [*command.split(), *["td3"] * (command in completing.OF_ALGORITHMS)]
    shown = re.findall(r"^[│ ] (--.*?)(?:  |│|$)", duetto(*words, "--help").out, re.MULTILINE)
    parsed = {flag for text in shown for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", text)}
    offered = set(completed(script, "duetto", *words, *["ENVIRONMENT"] * (words[-1] == "td3"), "--"))
    refused = {"--help"} | ({"--seed"} if command == "sweep" else set())
    assert offered - {"--config"} == parsed - refused
    assert ("--config" in offered) == (command == "train")
