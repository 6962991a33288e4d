"""Videos: an episode as an mp4 that a player can show."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from line_environment import Components, Line
from small_runs import train

from duetto import environments
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.runs.run import Run
from duetto.training.video import record

pytest.importorskip("imageio")
imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


def still(obs: np.ndarray) -> np.ndarray:
    return np.zeros((len(obs), 2), np.float32)


def read(path: Path) -> tuple[np.ndarray, str]:
    """All frames (T, H, W, 3), and what ffmpeg says about the file."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    result = subprocess.run(command, capture_output=True, check=True)
    about = result.stderr.decode()
    width, height = (int(side) for side in re.findall(r"Video: .* (\d+)x(\d+)", about)[0])
    return np.frombuffer(result.stdout, np.uint8).reshape(-1, height, width, 3), about


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("made"), environment=Line, steps=40)


def test_every_step_is_a_frame_at_the_environments_own_rate(tmp_path: Path):
    path = tmp_path / "new" / "line.mp4"
    episode = record(still, environments.make(Line, render_mode="rgb_array"), 0, path)
    frames, about = read(path)
    assert episode.length == 10
    assert frames.shape == (10, 4, 6, 3)  # of 5 x 7: even sides
    assert "Video: h264" in about
    assert " 10 fps" in about
    assert [path.name for path in path.parent.iterdir()] == ["line.mp4"]


def test_links_are_not_followed(tmp_path: Path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    (tmp_path / ".line.partial.mp4").symlink_to(thesis)
    record(still, environments.make(Line, render_mode="rgb_array"), 0, tmp_path / "line.mp4")
    assert thesis.read_text() == "years of work"


@pytest.mark.parametrize("environment", ["Pendulum-v1", "HalfCheetah-v5"])
def test_real_environments(tmp_path: Path, environment: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    options = {"max_episode_steps": 30}
    try:
        stepper = environments.make(environment, render_mode="rgb_array")
        stepper.reset(0)
        stepper.render()
        stepper.close()
    except Exception as error:
        pytest.skip(f"{environment} cannot be rendered on this machine: {error!r}")
    run = train(tmp_path, environment=environment, steps=1, evaluate_every=0, environment_options=options)
    frames, _ = read(run.video())
    assert len(frames) == 30
    assert min(frames.shape[1:3]) >= 400
    assert np.ptp(frames[0].astype(int)) > 50, "an empty picture"
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 50, "a picture that does not move"


def test_an_environment_without_pictures(tmp_path: Path):
    run = train(tmp_path, environment=Components, steps=40)
    with pytest.raises(UsageError, match=r"Components: render gives None"):
        run.video()
    assert not list(run.path.glob("videos/*"))


def test_pictures_of_another_kind_are_refused(tmp_path: Path):
    """ffmpeg's writer stretched their contrast, each frame's on its own."""

    class Whole(Line):
        def render(self) -> np.ndarray:
            return super().render().astype(int)

    class Growing(Line):
        def render(self) -> np.ndarray:
            return np.tile(super().render(), (1 + self.time // 3, 1, 1))

    for kind, said in (
        (Whole, r"render gives an array of shape .* and dtype int64\. Return a uint8 array"),
        (Growing, "same size"),
    ):
        with pytest.raises(DuettoError, match=said):
            record(still, environments.make(kind, render_mode="rgb_array"), 0, tmp_path / "no.mp4")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(made: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=rf"Videos need imageio and ffmpeg\. Install: {re.escape(install('video'))}"):
        made.video(tmp_path / "no.mp4")
    assert list(tmp_path.iterdir()) == []


def test_a_video_that_fails_half_way_is_not_there(tmp_path: Path):
    class Failing(Line):
        def render(self) -> np.ndarray:
            if self.time == 5:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().render()

    with pytest.raises(DuettoError, match="No space left"):
        record(still, environments.make(Failing, render_mode="rgb_array"), 0, tmp_path / "half.mp4")
    assert list(tmp_path.iterdir()) == []
