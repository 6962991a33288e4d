"""Videos of an agent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import Episode, VecEnv
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.networks import masks
from duetto.networks.preprocessing import is_image, named_parts
from duetto.networks.spaces import Box, Space
from duetto.storage import atomic_io, safe_open
from duetto.training.evaluation import Act, watch


def record(
    act: Act,
    stepper: VecEnv,
    seed: int,
    path: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Episode:
    """Write one episode as an mp4 (H.264) at the environment's own frame rate. The file appears when it is complete.

    If the agent observes an image, the newest one is shown next to the picture.
    """
    atomic_io.check_suffix(path, ".mp4", "a video")
    writer: Any = None
    try:
        with atomic_io.replacing(path) as partial, ExitStack() as opened:
            partial.touch()  # whether it can be written here shows before ffmpeg is asked, which would say it in pages
            sizes = set[tuple[int, ...]]()

            def write(frame: np.ndarray, obs: Tree) -> None:
                nonlocal writer
                frame = with_observation(frame, stepper.observation_space, obs)
                sizes.add(frame.shape)
                if len(sizes) > 1:
                    raise UsageError(
                        f"{stepper.name}: render gives pictures of {frame.shape} among others, and a video has one "
                        "size. Render all of an episode alike."
                    )
                if writer is None:  # now, because some environments know their picture only once they show it
                    writer = _writer(partial, stepper.render_fps)
                    opened.callback(writer.close)
                writer.append_data(_even(frame))
                tell(f"recording: {stepper.steps:,} steps")

            episode = watch(act, stepper, seed, write)
            writer.close()
            return episode
    except OSError as error:
        raise DuettoError(f"The video {path} cannot be written: {_cause(error, path.parent)}.") from error


def _cause(error: OSError, folder: Path) -> str:
    """The error in words. On a full disk ffmpeg ends silently, its pipe breaks, and imageio quotes its command line."""
    if isinstance(error, BrokenPipeError) or "FFMPEG" in str(error).upper():
        free = shutil.disk_usage(folder).free / 1e6 if folder.is_dir() else 0.0
        return f"ffmpeg ended before it was done (the disk has {free:.1f} MB free)"
    return error.strerror or str(error)


def place(folder: Path, step: int) -> Path:
    """The path of a run's video of this step. Raises DuettoError if a link is in the way."""
    path = folder / "videos" / f"step-{step:012}.mp4"
    safe_open.check_folders([path.parent])
    return path


def with_observation(frame: np.ndarray, space: Space, obs: Tree) -> np.ndarray:
    """The frame (H, W, 3) and, if the agent sees images, its newest one next to it, enlarged to the same height."""
    image = next(((name, part) for name, part in named_parts(space) if is_image(part)), None)
    if image is None:
        return frame
    name, part = image
    obs, _ = masks.split_mask(obs)
    view = (obs[name] if isinstance(obs, dict) else obs)[0]
    view = view if isinstance(part, Box) and not part.channels_first else np.moveaxis(view, 0, -1)
    view = view[..., -3:] if view.shape[-1] % 3 == 0 else np.repeat(view[..., -1:], 3, axis=-1)  # color, or greys
    height, width = len(frame), len(frame) * view.shape[1] // view.shape[0]
    rows, columns = (np.arange(size) * side // size for size, side in zip((height, width), view.shape, strict=False))
    return np.concatenate([frame, view[rows][:, columns]], axis=1)


def _writer(path: Path, fps: float) -> Any:
    # Otherwise ffmpeg is started by a fork of this process, with JAX's threads in it: a warning, and sometimes a hang.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    # It grumbles at a picture that was cut off where somebody interrupts; what it cannot write is raised here.
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
