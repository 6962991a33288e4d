"""Videos of a policy's episodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from duetto.environments import Episode, VecEnv
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.storage import atomic_io, safe_open
from duetto.training.evaluation import Act, watch


def record(
    act: Act,
    stepper: VecEnv,
    seed: int,
    path: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Episode:
    """Write one episode as an mp4 (H.264) at the environment's frame rate; return the episode.

    The file appears at `path` when it is complete. `tell` gets a few words about the progress.

    Raises:
        DuettoError: The file cannot be written, or the frames differ in size.
        UsageError: imageio or ffmpeg is missing, or the environment cannot render.
    """
    atomic_io.check_suffix(path, ".mp4", "a video")
    writer: Any = None
    try:
        with atomic_io.replacing(path) as partial, ExitStack() as opened:
            partial.touch()  # raises a short error if the folder is not writable; ffmpeg's is long

            def write(frame: np.ndarray) -> None:
                nonlocal writer
                if writer is None:  # only now, because some environments know their frame rate only after rendering
                    writer = _writer(partial, stepper.render_fps)
                    opened.callback(writer.close)
                writer.append_data(_even(frame))
                tell(f"recording: {stepper.steps:,} steps")

            episode = watch(act, stepper, seed, write)
            writer.close()
            return episode
    except (OSError, ValueError) as error:  # ValueError: frames of different sizes
        cause = getattr(error, "strerror", None) or str(error).partition("\n")[0]  # without ffmpeg's command line
        raise DuettoError(f"The video {path} cannot be written: {cause}.") from error


def place(folder: Path, step: int) -> Path:
    """Return the path of a run's video of this step. Raises DuettoError if `videos/` is or contains a link."""
    path = folder / "videos" / f"step-{step:012}.mp4"
    safe_open.check_folders([path.parent])
    return path


def _writer(path: Path, fps: float) -> Any:
    # "fatal" hides the error that ffmpeg prints when an interrupt cuts a frame. Other write errors are raised here.
    how: dict[str, Any] = {"macro_block_size": 1, "codec": "libx264", "quality": 8, "ffmpeg_log_level": "fatal"}
    return imageio().get_writer(path, fps=fps, **how)


def imageio() -> Any:
    """Import imageio, which writes videos. Raises UsageError if it or ffmpeg is not installed."""
    # Without this, imageio forks this process to start ffmpeg. JAX's threads make a fork warn, and sometimes hang.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    try:
        import imageio.v2
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()  # imageio's own error names another way to install ffmpeg
    except (ModuleNotFoundError, RuntimeError) as error:
        raise UsageError(f"Videos need imageio and ffmpeg. Install: {install('video')}") from error
    return imageio.v2


def _even(frame: np.ndarray) -> np.ndarray:
    """Drop the last row or column if their number is odd, because H.264 requires even sizes."""
    height, width = frame.shape[:2]
    return np.ascontiguousarray(frame[: height - height % 2, : width - width % 2])
