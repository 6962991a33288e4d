"""The newest video of a run, as a page can hold it: a plain file, an mp4, and not too large."""

from __future__ import annotations

import base64
from pathlib import Path

from duetto.errors import DuettoError
from duetto.storage import within

LARGEST = 2**24  # bytes of one
LARGEST_ALL = 2**26  # bytes of all of a page


def newest(folder: Path) -> Path | None:
    """The run's video of the latest step, by its name; or None."""
    videos = folder / "videos"
    try:
        within.check_folders([videos])
        found = sorted(path for path in videos.glob("*.mp4") if not path.name.startswith("."))
    except (DuettoError, OSError):
        return None
    return found[-1] if found else None


def read(path: Path, most: int) -> tuple[str, str]:
    """Read a video: its data URL and "", or "" and a sentence on why there is none."""
    try:
        content = within.read_file(path, min(most, LARGEST))
    except DuettoError as error:
        return "", str(error)
    except OSError as error:
        return "", f"{path} cannot be read: {error.strerror}."
    if content[4:8] != b"ftyp":
        return "", f"{path} is no mp4, and is left out."
    return f"data:video/mp4;base64,{base64.b64encode(content).decode()}", ""
