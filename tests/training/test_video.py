"""Recording an episode as an mp4 file."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from line_environment import Components, Line, zero_actions
from small_runs import train

from duetto import environments
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.training.video import record

pytest.importorskip("imageio")
imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


def read_video(path: Path) -> tuple[np.ndarray, str]:
    """Return all frames (T, H, W, 3), and ffmpeg's description of the file."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    result = subprocess.run(command, capture_output=True, check=True)
    about = result.stderr.decode()
    width, height = (int(side) for side in re.findall(r"Video: .* (\d+)x(\d+)", about)[0])
    return np.frombuffer(result.stdout, np.uint8).reshape(-1, height, width, 3), about


def test_video_has_one_frame_per_step_at_render_fps(tmp_path: Path):
    path = tmp_path / "new" / "line.mp4"
    episode = record(zero_actions, environments.make(Line, render_mode="rgb_array"), 0, path)
    frames, about = read_video(path)
    assert episode.length == 10
    assert frames.shape == (10, 4, 6, 3)  # cut from 5 x 7, since H.264 needs even sides
    assert "Video: h264" in about
    assert " 10 fps" in about
    assert [path.name for path in path.parent.iterdir()] == ["line.mp4"]


def test_video_recording_does_not_follow_symlinks(tmp_path: Path):
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    (tmp_path / ".line.partial.mp4").symlink_to(thesis)
    record(zero_actions, environments.make(Line, render_mode="rgb_array"), 0, tmp_path / "line.mp4")
    assert thesis.read_text() == "years of work"


def test_video_of_pendulum_shows_motion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    run = train(tmp_path, steps=1, evaluate_every=0, environment_options={"max_episode_steps": 30})
    frames, _ = read_video(run.video())
    assert len(frames) == 30
    assert min(frames.shape[1:3]) >= 400
    assert np.ptp(frames[0].astype(int)) > 50, "an empty image"
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 50, "an image that does not change"


def test_video_without_rendered_images_is_refused(tmp_path: Path):
    run = train(tmp_path, environment=Components, steps=40)
    with pytest.raises(UsageError, match=r"Components: render gives None"):
        run.video()
    assert not list(run.path.glob("videos/*"))


def test_video_frames_of_wrong_dtype_or_size_are_refused(tmp_path: Path):

    class IntegerFrames(Line):
        def render(self) -> np.ndarray:
            return super().render().astype(int)

    class GrowingFrames(Line):
        def render(self) -> np.ndarray:
            return np.tile(super().render(), (1 + self.time // 3, 1, 1))

    for kind, said in (
        (IntegerFrames, r"render gives an array of shape .* and dtype int64\. Return a uint8 array"),
        (GrowingFrames, "same size"),
    ):
        with pytest.raises(DuettoError, match=said):
            record(zero_actions, environments.make(kind, render_mode="rgb_array"), 0, tmp_path / "no.mp4")
    assert list(tmp_path.iterdir()) == []


def test_video_without_extra_names_install_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    run = train(tmp_path / "runs", environment=Line, steps=40)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=rf"Videos need imageio and ffmpeg\. Install: {re.escape(install('video'))}"):
        run.video(tmp_path / "no.mp4")
    assert not (tmp_path / "no.mp4").exists()


def test_failed_video_leaves_no_file(tmp_path: Path):
    class FailingRender(Line):
        def render(self) -> np.ndarray:
            if self.time == 5:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().render()

    with pytest.raises(DuettoError, match="No space left"):
        record(zero_actions, environments.make(FailingRender, render_mode="rgb_array"), 0, tmp_path / "half.mp4")
    assert list(tmp_path.iterdir()) == []
