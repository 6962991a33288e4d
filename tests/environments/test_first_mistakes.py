"""What goes wrong in a first hour: a package for pictures that is missing, a display."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from duetto import environments
from duetto.environments import suggestions
from duetto.errors import EnvironmentFailedError, UsageError
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
    sentence = str(suggestions.not_shown(environment, error))
    assert sentence.startswith(f"{environment} cannot be shown ({error}).")
    assert ("MUJOCO_GL=egl" in sentence) == display


WARNING = """
import sys
import duetto

duetto.train(
    duetto.PPO(hidden=(8,), rollout_steps=4, minibatches=1), "CartPole-v0", steps=8, num_envs=2,
    vectorization=sys.argv[1], backend="torch", device="cpu", evaluation_episodes=1,
)
"""


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
def test_gymnasiums_warnings_are_told_once(vectorization: str, tmp_path: Path):
    (tmp_path / "script.py").write_text(WARNING)
    command = [sys.executable, "script.py", vectorization]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stderr.count("CartPole-v0 is out of date") == 1


class Screen(gymnasium.Env):
    """Fails where there is no display."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, display: bool, render_mode: str = "rgb_array") -> None:
        self.display, self.render_mode = display, render_mode

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def render(self) -> Any:
        if not self.display:
            raise RuntimeError("no context")
        return np.zeros((2, 2, 3), np.uint8)


class Window(Screen):
    """Shows itself, or fails to."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human"]}

    def reset(self, **arguments: Any) -> Any:
        os.write(2, b"error: XDG_RUNTIME_DIR")
        if not self.display:
            raise RuntimeError("No available video device")
        return super().reset(**arguments)


def test_where_no_window_can_be_opened_a_sentence_says_what_can_be_done(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(UsageError, match=r"in a window \(No available .* record it: duetto video"):
        environments.make(Window(display=False, render_mode="human")).show(0)
    assert capfd.readouterr().err == ""
    environments.make(Window(display=True, render_mode="human")).show(0)


def test_nothing_is_said_before_that_sentence(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Neither by SDL, nor is it taken for a mistake of the environment's."""
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "none-such")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    stepper = environments.make("CartPole-v1", render_mode="human")
    with pytest.raises(UsageError, match=r"CartPole-v1 cannot be shown in a window \(none-such not available\)"):
        stepper.show(0)
    stepper.close()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="a display is told by DISPLAY there")
@pytest.mark.parametrize("environment", ["HalfCheetah-v5", "HopperBulletEnv-v0"])
def test_windows_that_would_end_the_process_or_wait_for_ever(environment: str, monkeypatch: pytest.MonkeyPatch):
    """MuJoCo's do one, Bullet's the other, where there is no display."""
    pytest.importorskip("mujoco")
    pytest.importorskip("pybullet_envs_gymnasium")
    monkeypatch.delenv("DISPLAY", raising=False)
    stepper = environments.make(environment, render_mode="human")
    with pytest.raises(UsageError, match=rf"{environment} cannot be shown in a window \(there is no display\)"):
        stepper.show(0)
    stepper.close()


def test_what_is_drawn_where_nobody_sees_it_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    """Without a display SDL draws into memory. Told to do so, as by tests, it may."""
    pygame: Any = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    stepper = environments.make("CartPole-v1", render_mode="human")
    stepper.show(0)
    assert pygame.display.get_driver() == "dummy"
    monkeypatch.delenv("SDL_VIDEODRIVER")
    with pytest.raises(UsageError, match=r"CartPole-v1 cannot be shown in a window \(there is no display\)\. .*video"):
        stepper.show(0)
    stepper.close()


def test_an_environment_that_fails_in_its_first_reset_is_not_taken_for_one_without_a_window():
    class Broken(Window):
        def reset(self, **arguments: Any) -> Any:
            raise RuntimeError("a wheel is missing")

    with pytest.raises(EnvironmentFailedError, match="a wheel is missing"):
        environments.make(Broken(display=True, render_mode="human")).show(0)


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
