"""Videos of an agent."""

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
    """Write one episode as an mp4 (H.264) at the environment's own frame rate. The file appears when it is complete."""
    atomic_io.check_suffix(path, ".mp4", "a video")
    writer: Any = None
    try:
        with atomic_io.replacing(path) as partial, ExitStack() as opened:
            partial.touch()  # whether it can be written here shows before ffmpeg is asked, which would say it in pages

            def write(frame: np.ndarray) -> None:
                nonlocal writer
                if writer is None:  # now, because some environments know their picture only once they show it
                    writer = _writer(partial, stepper.render_fps)
                    opened.callback(writer.close)
                writer.append_data(_even(frame))
                tell(f"recording: {stepper.steps:,} steps")

            episode = watch(act, stepper, seed, write)
            writer.close()
            return episode
    except (OSError, ValueError) as error:  # ValueError: pictures of several sizes
        cause = getattr(error, "strerror", None) or str(error).partition("\n")[0]  # imageio adds ffmpeg's command line
        raise DuettoError(f"The video {path} cannot be written: {cause}.") from error


def place(folder: Path, step: int) -> Path:
    """The path of a run's video of this step. Raises DuettoError if a link is in the way."""
    path = folder / "videos" / f"step-{step:012}.mp4"
    safe_open.check_folders([path.parent])
    return path


def _writer(path: Path, fps: float) -> Any:
    # Otherwise ffmpeg is started by a fork of this process, with JAX's threads in it: a warning, and sometimes a hang.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    # It prints an error for a frame cut off by an interrupt; other write errors are raised here.
    how: dict[str, Any] = {"macro_block_size": 1, "codec": "libx264", "quality": 8, "ffmpeg_log_level": "fatal"}
    return imageio().get_writer(path, fps=fps, **how)


def imageio() -> Any:
    """Import imageio, which writes videos. Raises UsageError if it is not installed."""
    try:
        import imageio.v2
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise UsageError(f"Videos need imageio and ffmpeg. Install: {install('video')}") from error
    del imageio_ffmpeg  # imported to see that it is there: imageio would name another way to install it
    return imageio.v2


def _even(frame: np.ndarray) -> np.ndarray:
    """The frame without an odd last row or column: H.264 needs even sides."""
    height, width = frame.shape[:2]
    return np.ascontiguousarray(frame[: height - height % 2, : width - width % 2])
