"""Videos of an agent."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import Episode, Stepper
from duetto.errors import DuettoError, UsageError
from duetto.training.evaluation import watch


def record(act: Callable[[Tree], np.ndarray], stepper: Stepper, seed: int, path: Path) -> Episode:
    """Write one episode as an mp4 (H.264) at the environment's own frame rate. The file appears when it is complete."""
    partial = path.with_name(f".{path.stem}.partial.mp4")
    writer: Any = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            opened.callback(partial.unlink, missing_ok=True)

            def write(frame: np.ndarray) -> None:
                nonlocal writer
                if writer is None:  # now, because some environments know their picture only once they show it
                    writer = _writer(partial, stepper.render_fps)
                    opened.callback(writer.close)
                writer.append_data(_even(frame))

            episode = watch(act, stepper, seed, write)
            writer.close()
            partial.replace(path)
            return episode
    except OSError as error:
        raise DuettoError(f"The video {path} cannot be written: {error}.") from error


def _writer(path: Path, fps: float) -> Any:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise UsageError("Videos need imageio and ffmpeg: pip install 'duetto[video]'.") from error
    del imageio_ffmpeg  # imported to see that it is there: imageio would name another way to install it
    # Otherwise ffmpeg is started by a fork of this process, with JAX's threads in it: a warning, and sometimes a hang.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    return imageio.get_writer(path, fps=fps, macro_block_size=1, codec="libx264", quality=8)


def _even(frame: np.ndarray) -> np.ndarray:
    """H.264 wants even sides: leave out an odd last row or column."""
    height, width = frame.shape[:2]
    return np.ascontiguousarray(frame[: height - height % 2, : width - width % 2])
