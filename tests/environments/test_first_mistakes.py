"""What goes wrong in a first hour: a package for pictures that is missing, a display."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from duetto import environments
from duetto.environments import env_registry
from duetto.errors import UsageError
from duetto.install_hint import install


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
    sentence = str(env_registry.not_shown(environment, error))
    assert sentence.startswith(f"{environment} cannot be shown ({error}).")
    assert ("MUJOCO_GL=egl" in sentence) == display


@pytest.mark.skipif(sys.platform != "linux", reason="a display is told by DISPLAY there")
@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "HopperBulletEnv-v0", "CartPole-v1"])
def test_no_window_opens_without_a_display(environment: str, monkeypatch: pytest.MonkeyPatch):
    """MuJoCo's would end the process, Bullet's wait for ever, SDL's be drawn where nobody sees it."""
    pytest.importorskip("mujoco")
    pytest.importorskip("pybullet_envs_gymnasium")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    stepper = environments.make(environment, render_mode="human")
    with pytest.raises(UsageError, match=rf"{environment} cannot be shown in a window without a display"):
        stepper.show(0)
    stepper.close()


def test_an_environment_shows_itself(monkeypatch: pytest.MonkeyPatch):
    pygame: Any = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    stepper = environments.make("CartPole-v1", render_mode="human")
    stepper.show(0)
    assert pygame.display.get_driver() == "dummy"
    stepper.close()


def test_without_pygame_watching_names_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.raises(UsageError) as refusal:
        environments.make("CartPole-v1", render_mode="human").show(0)
    assert str(refusal.value).endswith(f"Install: {install('classic')}")


def test_what_c_libraries_print_before_the_first_picture_is_not_shown(capfd: pytest.CaptureFixture[str]):
    stepper = environments.make("CartPole-v1", render_mode="rgb_array")
    stepper.reset(0)
    stepper.environments[0].unwrapped.render = lambda: (
        os.write(2, b"error: XDG_RUNTIME_DIR") and np.zeros((2, 2, 3), np.uint8)
    )
    stepper.render()
    assert capfd.readouterr().err == ""
    stepper.render()
    assert capfd.readouterr().err != ""  # of later ones it is


SCRIPT = """
import duetto, gymnasium
from gymnasium.envs.classic_control import PendulumEnv

class Mine(PendulumEnv):
    pass

gymnasium.register("Mine-v0", Mine, max_episode_steps=10)
duetto.train(
    duetto.TD3(hidden=(8,), random_steps=4, learning_starts=4, batch_size=4), "Mine-v0", steps=8, num_envs=2,
    vectorization="subprocess", backend="torch", device="cpu", evaluate_every=0,
)
"""


def test_a_script_needs_no_guard(tmp_path: Path):
    """Workers import nothing of it, and get the classes that it defines."""
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(list((tmp_path / "runs").glob("*"))) == 1
