"""Moving pictures of our own agents, from their runs' last checkpoints: `docs/_static/clips`, and a still of each.

    python docs/figures/filmed.py cheetah runs/crossq-HalfCheetah-v5-s0      # beside it what it was before its first step
    python docs/figures/filmed.py breakout runs/ppo-Breakout-v5-s0           # beside it what it sees
    python docs/figures/filmed.py pong runs/ppo-Pong-v5-s0
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CLIPS = Path(__file__).parents[1] / "_static" / "clips"


def duetto(*arguments: str) -> None:
    """The command line, of this Python."""
    subprocess.run([sys.executable, "-m", "duetto", *arguments], check=True)


def frames(run: Path, folder: Path, first: int, count: int) -> list[Any]:
    """Those of an episode of a run's last policy."""
    from PIL import Image

    duetto("video", str(run), "--output", str(folder / "episode.mp4"), "--frames", str(folder))
    return [Image.open(path).convert("RGB") for path in sorted(folder.glob("*.png"))[first : first + count]]


def cheetah(run: Path, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """The same start twice: the policy before the first step, and the last one."""
    from PIL import Image

    untrained = ("--config", str(run / "config.yaml"), "--steps", "1", "--name", "before", "--quiet")
    duetto("train", *untrained, "--runs-dir", str(folder))
    sides = []
    for name, which in (("before", folder / "before"), ("after", run)):
        sides.append(frames(which, folder / f"frames-{name}", 0, 80))
    pictures = []
    for pair in zip(*sides, strict=True):
        cut = [one.crop((0, 150, 480, 390)).resize((400, 200), Image.Resampling.LANCZOS) for one in pair]
        both = Image.new("RGB", (808, 200), "white")
        for i, one in enumerate(cut):
            both.paste(one, (408 * i, 0))
        pictures.append(both)
    return pictures, {"quality": 45, "method": 6, "duration": 50}


def game(run: Path, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """A quarter of a minute of a game, and beside it what the agent sees."""
    from PIL import Image

    pictures = frames(run, folder / "frames", 0, 220)
    scaled = [one.resize((2 * one.width, 2 * one.height), Image.Resampling.NEAREST) for one in pictures]
    return scaled, {"lossless": True, "quality": 100, "method": 6, "duration": 67}


def write(name: str, run: Path) -> None:
    """A clip and its still."""
    with TemporaryDirectory() as there:
        pictures, how = (cheetah if name == "cheetah" else game)(run, Path(there))
        CLIPS.mkdir(parents=True, exist_ok=True)
        first, *others = pictures
        first.save(CLIPS / f"{name}.webp", save_all=True, append_images=others, loop=0, minimize_size=True, **how)
        pictures[len(pictures) // 2].quantize(64).save(CLIPS / f"{name}.png", optimize=True)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
