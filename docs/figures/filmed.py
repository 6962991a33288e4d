"""Film agents from the last checkpoints of their runs: `docs/_static/clips`, and a still of each.

python docs/figures/filmed.py cheetah runs/td3-HalfCheetah-v5-s0      # with the untrained agent
python docs/figures/filmed.py breakout runs/ppo-Breakout-v5-s0 1430      # with its observation, from that step
python docs/figures/filmed.py pong runs/ppo-Pong-v5-s0
python docs/figures/filmed.py ant runs/td3-AntBulletEnv-v0-s0 300        # from that step
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CLIPS = Path(__file__).parents[1] / "_static" / "clips"


def untrained(run: Path, folder: Path) -> Path:
    """A run of the same options that ends after its first step, before it has learned anything."""
    import duetto
    from duetto.algorithms import ALGORITHMS
    from duetto.storage import safe_yaml

    config = safe_yaml.read_yaml(run / "config.yaml")
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in config["algorithm"].items()}
    duetto.train(
        ALGORITHMS[options.pop("name")](**options),
        config["environment"]["id"],
        steps=config["run"]["steps"],
        seed=config["run"]["seed"],
        backend="torch",
        evaluate_every=0,
        callbacks=[lambda trainer: trainer.stop("it is to stay untrained")],
        runs_dir=str(folder.parent),
        name=folder.name,
    )
    return folder


def cheetah(run: Path, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """Four seconds from the same start, twice: by the policy before the first step, and by the last one."""
    from PIL import Image

    sides = [steps(which, 80) for which in (untrained(run, folder / "before"), run)]
    pictures = []
    for pair in zip(*sides, strict=True):
        cut = [one.crop((0, 205, 480, 445)).resize((400, 200), Image.Resampling.LANCZOS) for one in pair]
        both = Image.new("RGB", (808, 200), "gray")
        for i, one in enumerate(cut):
            both.paste(one, (408 * i, 0))
        pictures.append(both)
    return pictures, {"quality": 45, "method": 4, "duration": 50}


def steps(run: Path, count: int) -> list[Any]:
    """Pictures of the first steps of an episode, with seed 0."""
    import gymnasium
    from PIL import Image

    import duetto

    agent = duetto.Run(run).agent()
    env = gymnasium.make("HalfCheetah-v5", render_mode="rgb_array", camera_name="track")
    obs, _ = env.reset(seed=0)
    pictures = []
    for _ in range(count):
        pictures.append(Image.fromarray(env.render()))
        obs, *_ = env.step(agent.act(obs))
    env.close()
    return pictures


def game(run: Path, folder: Path, start: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """Film 15 seconds of a game, with the agent's observation."""
    from PIL import Image

    pictures = episode(run, folder)[start : start + 220]
    scaled = [one.resize((2 * one.width, 2 * one.height), Image.Resampling.NEAREST) for one in pictures]
    return scaled, {"lossless": True, "quality": 75, "method": 4, "duration": 67}


def ant(run: Path, folder: Path, start: int = 0) -> tuple[list[Any], dict[str, Any]]:
    """Film four seconds of PyBullet's ant, which makes 60 steps per second."""
    return episode(run, folder)[start : start + 240 : 3], {"quality": 45, "method": 4, "duration": 50}


def episode(run: Path, folder: Path) -> list[Any]:
    """Pictures of the steps of an episode."""
    import imageio.v2
    from PIL import Image

    film = folder / "episode.mp4"
    subprocess.run([sys.executable, "-m", "duetto", "video", str(run), "--output", str(film)], check=True)
    return [Image.fromarray(picture) for picture in imageio.v2.mimread(film, memtest=False)]


def write(name: str, run: Path, *start: int) -> None:
    """A clip and its still."""
    with TemporaryDirectory() as there:
        pictures, how = {"cheetah": cheetah, "ant": ant}.get(name, game)(run, Path(there), *start)
        CLIPS.mkdir(parents=True, exist_ok=True)
        first, *others = pictures
        first.save(CLIPS / f"{name}.webp", save_all=True, append_images=others, loop=0, minimize_size=True, **how)
        pictures[len(pictures) // 2].quantize(64).save(CLIPS / f"{name}.png", optimize=True)


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
