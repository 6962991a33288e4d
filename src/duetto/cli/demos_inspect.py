"""`duetto demos inspect DEMOS [--video FILE.mp4 --episode K]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from duetto import demonstrations, environments
from duetto.cli.demos_showing import spread
from duetto.cli.options import Json, Trust
from duetto.cli.output import print_json
from duetto.demonstrations import Demonstrations, Replay, spell
from duetto.display.live import say
from duetto.display.video import record
from duetto.errors import UsageError
from duetto.storage.trust import check as check_trust
from duetto.training.evaluation import SEED_OFFSET

FIRST = 10  # episodes that are listed
SHOWN = ("duetto", "git", "gymnasium", "minigrid", "ale-py", "mujoco")  # of the versions


def main(arguments: list[str]) -> None:
    """Parse, and inspect."""
    tyro.cli(inspect, args=arguments, prog="duetto demos inspect")


def inspect(
    demos: Annotated[Positional[str], arg(help="The folder of the demonstrations.")],
    video: Annotated[str | None, arg(help="Play an episode again, and record it.", metavar="FILE.mp4")] = None,
    episode: Annotated[int | None, arg(help="Which one, from 0; by default 0.", metavar="K")] = None,
    all: Annotated[bool, arg(help=f"List all episodes, not only the first {FIRST}.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Show what demonstrations are of, and what their episodes are like."""
    if episode is not None and video is None:
        raise UsageError(f"--episode {episode} says which one to record: give --video FILE.mp4 too.")
    found = demonstrations.load(demos)
    if not json:
        _show(found, len(found) if all else FIRST)
    if video is not None:
        about = found.description
        check_trust(about.environment, about.options, found.signature, demos, trust)
        _film(found, episode or 0, Path(video))
    if json:
        print_json(_described(found, demos) | {"video": video})
    elif video is not None:
        say(Console(), video)


def _show(found: Demonstrations, rows: int) -> None:
    console = Console()
    for notice in found.notices:
        say(Console(stderr=True), notice, "yellow")
    _say_what_it_is(console, found)
    console.print(_table(found, rows))
    if len(found) > rows:
        say(console, f"and {len(found) - rows} more: --all lists them.")


def _described(found: Demonstrations, folder: str) -> dict[str, Any]:
    """The demonstrations described for programs, with every episode."""
    about = found.description
    episodes = zip(found.seeds, found.parts, found.returns, found.lengths, found.terminated, strict=True)
    names = ("seed", "part", "return", "steps", "terminated")
    return {
        "file": folder,
        "environment": about.environment,
        "options": about.options,
        "expert": about.expert,
        "observations": spell(about.observation_space, bounds=False),
        "actions": spell(about.action_space),
        "versions": about.versions,
        "episodes": [
            dict(zip(names, (seed, part, float(score), int(steps), bool(over)), strict=True))
            for seed, part, score, steps, over in episodes
        ],
        "notices": list(found.notices),
    }


def _say_what_it_is(console: Console, found: Demonstrations) -> None:
    about, ended = found.description, int(found.terminated.sum())
    options = ", ".join(f"{name}={value}" for name, value in about.options.items())
    lengths = f"{found.lengths.mean():.4g} ({found.lengths.min()} to {found.lengths.max()}), {found.steps:,} in all"
    for name, text in (
        ("environment", about.environment + (f" with {options}" if options else "")),
        ("expert", about.expert),
        ("observations", spell(about.observation_space, bounds=False)),
        ("actions", spell(about.action_space)),
        ("episodes", f"{len(found)}: {ended} terminated, {len(found) - ended} truncated"),
        ("return", spread(found)),
        ("steps", lengths),
        ("made with", ", ".join(f"{name} {about.versions[name]}" for name in SHOWN if name in about.versions)),
    ):
        say(console, f"{name:13} {text}")


def _table(found: Demonstrations, rows: int) -> Table:
    table = Table("episode", "seed", "return", "steps", "end")
    for number in range(min(rows, len(found))):
        seed, part = found.seeds[number], found.parts[number]
        origin = "-" if seed is None else f"{seed}, life {part + 1}" if part else str(seed)
        end = "terminated" if found.terminated[number] else "truncated"
        table.add_row(str(number), origin, f"{found.returns[number]:.4g}", str(found.lengths[number]), end)
    return table


def _film(found: Demonstrations, number: int, path: Path) -> None:
    """Replay an episode and record it. UsageError, and no video, if it ends otherwise than it was recorded."""
    replay = Replay(found, number)
    about = found.description
    stepper = environments.make(about.environment, render_mode="rgb_array", kwargs=about.options)
    try:
        record(replay, stepper, replay.seed - SEED_OFFSET, path)
    finally:
        stepper.close()
    if not replay.finished:
        path.unlink()
        raise UsageError(f"Episode {number} of {found.source} cannot be played again: it is over too soon.")
