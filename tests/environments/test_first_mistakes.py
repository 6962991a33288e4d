"""What goes wrong in a first hour: a package for pictures that is missing, a script without a guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from duetto import environments
from duetto.environments import naming
from duetto.errors import UsageError
from duetto.extras import install


def test_a_picture_that_needs_pygame_names_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    stepper = environments.make("CartPole-v1", render_mode="rgb_array")
    stepper.reset(0)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(UsageError) as refusal:
        stepper.render()
    assert str(refusal.value).startswith("CartPole-v1 cannot be shown (pygame is not installed")
    assert str(refusal.value).endswith(f"Install: {install('classic')}")
    assert "MUJOCO_GL" not in str(refusal.value)


@pytest.mark.parametrize(
    ("environment", "error", "display"),
    [
        ("HalfCheetah-v5", RuntimeError("it failed"), True),
        ("Mine-v0", gymnasium.error.Error("GLFWError: no display"), True),
        ("Mine-v0", ValueError("a single frame is wrong"), False),
        ("CartPole-v1", ValueError("it failed"), False),
    ],
)
def test_mujocos_display_is_named_where_it_may_be_that(environment: str, error: Exception, display: bool):
    sentence = str(naming.not_shown(environment, error))
    assert sentence.startswith(f"{environment} cannot be shown ({error}).")
    assert ("MUJOCO_GL=egl" in sentence) == display


SCRIPT = """
import duetto

duetto.train(
    duetto.TD3(hidden=(8,), random_steps=4, learning_starts=4, batch_size=4), "Pendulum-v1", steps=8, num_envs=2,
    vectorization="subprocess", backend="torch", device="cpu", evaluate_every=0,
)
"""


def test_a_script_without_a_guard_gets_one_sentence(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    result = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert 'Put the script\'s calls under `if __name__ == "__main__":`, or use vectorization="sync".' in last
    assert result.stderr.count("Traceback") == 1  # of the script itself, and none of its workers
    assert len(result.stderr.splitlines()) < 40
    assert not list((tmp_path / "runs").glob("*"))
