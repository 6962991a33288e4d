"""Common errors of a first run: rendering without pygame or a display, and scripts without a main guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from duetto import environments
from duetto.environments import env_registry
from duetto.errors import UsageError
from duetto.install_hint import install


@pytest.mark.parametrize("mode", ["rgb_array", "human"])
def test_rendering_without_pygame_gives_the_install_command(mode: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    stepper = environments.make("CartPole-v1", render_mode=mode)
    with pytest.raises(UsageError) as refusal:
        stepper.show(0) if mode == "human" else (stepper.reset(0), stepper.render())
    assert str(refusal.value).startswith("CartPole-v1 cannot be shown (pygame is not installed")
    assert str(refusal.value).endswith(f"Install: {install('classic')}")


@pytest.mark.parametrize(
    ("environment", "error", "display"),
    [
        ("HalfCheetah-v5", RuntimeError("it failed"), True),
        ("Mine-v0", gymnasium.error.Error("GLFWError: no display"), True),
        ("Mine-v0", ValueError("a single frame is wrong"), False),
        ("CartPole-v1", ValueError("it failed"), False),
    ],
)
def test_rendering_error_suggests_mujoco_gl_if_it_may_help(environment: str, error: Exception, display: bool):
    sentence = str(env_registry.not_shown(environment, error))
    assert sentence.startswith(f"{environment} cannot be shown ({error}).")
    assert ("MUJOCO_GL=egl" in sentence) == display


@pytest.mark.skipif(sys.platform != "linux", reason="Duetto looks for a display only on Linux")
@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "CartPole-v1"])
def test_human_rendering_without_a_display_is_refused(environment: str, monkeypatch: pytest.MonkeyPatch):
    """Otherwise MuJoCo would end the process, Bullet would wait forever, and SDL would draw an invisible window."""
    pytest.importorskip("mujoco")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    stepper = environments.make(environment, render_mode="human")
    with pytest.raises(UsageError, match=rf"{environment} cannot be shown in a window without a display"):
        stepper.show(0)
    stepper.close()


def test_human_rendering_opens_a_window(monkeypatch: pytest.MonkeyPatch):
    pygame: Any = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    stepper = environments.make("CartPole-v1", render_mode="human")
    stepper.show(0)
    assert pygame.display.get_driver() == "dummy"
    stepper.close()


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


def test_script_with_subprocess_workers_needs_no_main_guard(tmp_path: Path):
    """Workers do not import the script, but receive the classes that it defines."""
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(list((tmp_path / "runs").glob("*"))) == 1
