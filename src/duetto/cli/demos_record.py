"""`duetto demos record ENVIRONMENT --expert bot|keyboard|RUN --output FOLDER`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from rich.console import Console
from tyro.conf import FlagCreatePairsOff, arg

from duetto import demonstrations, environments, own_files
from duetto.cli import options
from duetto.cli.demos_showing import progress, say_what_is_there, versions
from duetto.cli.showing import warn
from duetto.demonstrations import Description, Expert, Game, Writer
from duetto.display.live import say
from duetto.environments import Stepper
from duetto.errors import UsageError
from duetto.runs.asked import whole
from duetto.runs.run import Run
from duetto.storage import trust
from duetto.training.evaluation import PARALLEL
from duetto.training.evaluations import check_same_spaces

_EXPERT = "bot (MiniGrid, BabyAI), keyboard (you), or the folder of a run, whose policy takes its best actions."


class Source(NamedTuple):
    """An expert, the environments that it acts in, and their options."""

    expert: Expert
    stepper: Stepper
    about: str
    options: dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse, and record."""
    tyro.cli(record, args=arguments, prog="duetto demos record")


def record(
    environment: options.EnvironmentId,
    expert: Annotated[str, arg(help=_EXPERT, metavar="bot|keyboard|RUN")],
    output: Annotated[str, arg(help="The folder to make.")],
    episodes: Annotated[int, arg(help="Whole episodes.")] = 100,
    seed: Annotated[int, arg(help="Of the first episode; the next one has the next.")] = 0,
    only_successes: Annotated[
        bool, arg(help="Leave out returns of 0 and less, as is always done for the bot.")
    ] = False,
    minimum_return: Annotated[float | None, arg(help="Leave out episodes with a lower return.")] = None,
    environment_options: options.PlainEnvironmentOptions = (),
    checkpoint: Annotated[str, arg(help="Of the run.", metavar="last|best|STEP")] = "last",
    stochastic: Annotated[FlagCreatePairsOff[bool], arg(help="Of a run: act as it explores in training.")] = False,
    overwrite: Annotated[bool, arg(help="Replace the dataset that is there.")] = False,
    json: options.Json = False,
    trust: options.Trust = False,
) -> None:
    """Record whole episodes of an expert as a Minari dataset, to learn from."""
    seed = checked(episodes, seed)
    for option, given in (("checkpoint", checkpoint != "last"), ("stochastic", stochastic)):
        if expert in ("bot", "keyboard") and given:
            raise UsageError(f"--{option} is of a run, and the expert is {expert}: leave it out.")
    demonstrations.check_free(Path(output), overwrite)
    console, environment = Console(stderr=json), own_files.absolute(environment)
    given = options.environment_options(environment_options)
    source = _source(console, expert, environment, given, checkpoint, episodes, trust, stochastic)
    keep = _condition(minimum_return, only_successes or expert == "bot")
    play(console, environment, source, output, episodes, seed, keep, overwrite, json)


def checked(episodes: int, seed: int) -> int:
    """The seed. UsageError if it is negative, or if there is less than one episode."""
    whole("episodes", episodes, least=1)
    return whole("seed", seed, least=0)


def play(
    console: Console,
    environment: str,
    source: Source,
    output: str,
    episodes: int,
    seed: int,
    keep: Callable[[float], bool] = lambda score: True,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Record the episodes, show what was made, and close the source's environments."""
    spaces = source.stepper.observation_space, source.stepper.action_space
    description = Description(environment, source.options, source.about, *spaces, versions())
    try:
        with demonstrations.writer(output, description, overwrite) as writer, progress(console, episodes) as advance:
            games = demonstrations.record(source.expert, source.stepper, episodes, seed, keep)
            last = _write(games, writer, advance)
    finally:
        source.stepper.close()
    say_what_is_there(console, output, json, last - seed + 1)


def _write(games: Iterator[Game], writer: Writer, advance: Callable[[], None]) -> int:
    """Write the games as they come; return the seed of the last one."""
    last = 0
    with suppress(environments.PlayEndedError):  # the episodes that are over are kept
        for game in games:
            for part, demonstration in enumerate(game.demonstrations):
                writer.add(demonstration, game.seed, part)
            last = game.seed
            advance()
    return last


def _source(
    console: Console,
    expert: str,
    environment: str,
    given: dict[str, Any],
    checkpoint: str,
    episodes: int,
    trusted: bool,
    stochastic: bool,
) -> Source:
    if expert == "bot":
        stepper, bot = environments.make_bot(environment, given)
        return Source(bot, stepper, bot.about, given)
    if expert == "keyboard":
        stepper, player = environments.make_player(environment, given)
        say(console, str(player.keys))
        return Source(player, stepper, player.about, given)
    if not Path(expert).is_dir():
        raise UsageError(f"There is no expert {expert!r}. It is bot, keyboard, or the folder of a run, runs/...")
    return trained(Run(expert, trust=trusted), environment, given, checkpoint, episodes, trusted, stochastic)


def trained(
    run: Run,
    environment: str,
    given: dict[str, Any],
    checkpoint: str | int,
    episodes: int,
    trusted: bool = False,
    stochastic: bool = False,
) -> Source:
    """A run's policy as the expert, in the environment with the run's options and those given on top.

    It takes its best actions, even if evaluations sample; with `stochastic` it explores as in training.
    """
    folder = str(run.path)
    agent, config = run.agent(checkpoint), run.config
    warn(run)
    if trust.needs_trust("", config.environment_options):  # a module that the folder names, not the user
        trust.check(config.environment, config.environment_options, config.signature, folder, trusted)
    kwargs = config.environment_options | given
    stepper = environments.make(environment, num_envs=min(episodes, PARALLEL), kwargs=kwargs)
    try:
        check_same_spaces(stepper, agent.observation_space, agent.action_space)
    except UsageError:
        stepper.close()
        raise
    about = f"{config.algorithm.name()} in {folder}, {checkpoint} checkpoint, step {agent.step}, {agent.fingerprint}"
    policy = agent.policy
    policy.greedy, policy.explores = not stochastic, stochastic
    return Source(policy, stepper, about, kwargs)


def _condition(least: float | None, successes: bool) -> Callable[[float], bool]:
    return lambda score: (least is None or score >= least) and (score > 0 or not successes)
