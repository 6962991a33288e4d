"""Videos of an agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import Episode, Stepper
from duetto.errors import DuettoError, UsageError
from duetto.training.evaluation import watch


def record(act: Callable[[Tree], np.ndarray], stepper: Stepper, seed: int, path: Path) -> Episode:
    """Write one episode as an mp4 (H.264) at the environment's own frame rate. The file appears when it is complete."""
    writer: Any = None
    partial = path.with_name(f".{path.stem}.partial.mp4")

    def write(frame: np.ndarray) -> None:
        nonlocal writer
        writer = writer or _writer(partial, stepper.render_fps)
        writer.append_data(_even(frame))

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        episode = watch(act, stepper, seed, write)
        writer.close()
        partial.replace(path)
    except OSError as error:
        raise DuettoError(f"The video {path} cannot be written: {error}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return episode


def _writer(path: Path, fps: float) -> Any:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise UsageError("Videos need imageio and ffmpeg: pip install 'duetto[video]'.") from error
    del imageio_ffmpeg  # imported to see that it is there: imageio would name another way to install it
    return imageio.get_writer(path, fps=fps, macro_block_size=1, codec="libx264", quality=8)


def _even(frame: np.ndarray) -> np.ndarray:
    """H.264 wants even sides: leave out an odd last row or column."""
    height, width = frame.shape[:2]
    return np.ascontiguousarray(frame[: height - height % 2, : width - width % 2])
