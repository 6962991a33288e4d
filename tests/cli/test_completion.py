"""Shell completion, asked of the shell itself."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import Command

from duetto.tools.cli import COMMANDS, completion, demos

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="what bash completes is asked of bash itself")


def completed(script: str, *words: str) -> list[str]:
    asked = (
        f'{script}\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _duetto; echo "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run(["bash"], input=asked, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.split()


def test_bash_completes(duetto: Command, tmp_path):
    code, script, err = duetto("completion", "bash")
    assert (code, err) == (0, "")
    assert completed(script, "duetto", "re") == ["report", "resume"]
    assert set(completed(script, "duetto", "")) == {"-h", "--help", *COMMANDS}
    assert completed(script, "duetto", "train", "td") == ["td3"]
    assert completed(script, "duetto", "train", "td3", "Pendulum-v1", "--policy-d") == ["--policy-delay"]
    assert completed(script, "duetto", "train", "ppo", "CartPole-v1", "--policy-d") == []
    assert completed(script, "duetto", "tune", "td3", "Pendulum-v1", "--search") == ["--search", "--search-only"]
    assert completed(script, "duetto", "tune", "td3", "Pendulum-v1", "--policy-d") == ["--policy-delay"]
    assert completed(script, "duetto", "train", "td3", "Pendulum-v1", "--search") == []
    for command in ("train", "tune"):
        assert set(completed(script, "duetto", command, "td3", "Pendulum-v1", "--seed")) == {"--seed", "--seeds"}
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
        ("tune td3 Pendulum-v1 --network s", "simba"),
        ("sweep td3 Pendulum-v1 --normalize-observations s", "sampled"),
        ("train td3 --config ./my", "./my_algorithm.py"),
        ("train td3 Pendulum-v1 --no-repl", "--no-replacement"),
        ("train ./my", "./my_algorithm.py"),
        ("export runs/a --format ", "jax onnx torch"),
        ("evaluate runs/a --stoch", "--stochastic"),
        ("demos ", "--help -h export import inspect record"),
        ("demos record CartPole-v1 --exp", "--expert"),
        ("demos record CartPole-v1 --expert ./my", "./my_algorithm.py"),
        ("resume runs/a --mode as", "async"),
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
    words = [*command.split(), *["td3"] * (command in completion.OF_ALGORITHMS)]
    shown = re.findall(r"^[│ ] (--.*?)(?:  |│|$)", duetto(*words, "--help").out, re.MULTILINE)
    parsed = {flag for text in shown for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", text)}
    assert set(completed(script, "duetto", *words, *["ENVIRONMENT"] * (words[-1] == "td3"), "--")) == parsed | {
        "--help"
    }
