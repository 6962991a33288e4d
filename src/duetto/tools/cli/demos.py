"""`duetto demos record|export|import|inspect`: demonstrations to learn from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from duetto import demonstrations, environments
from duetto.demonstrations import Demonstrations, EpisodePlayer, Expert, Metadata, import_minari
from duetto.environments import VecEnv
from duetto.errors import UsageError, near
from duetto.networks.spaces import Discrete, spell
from duetto.runs.argument_checks import whole
from duetto.runs.run import Run
from duetto.storage import signing, user_code
from duetto.storage.config import circumstances
from duetto.tools.cli.options import Checkpoint, EnvironmentId, EnvironmentOptions, Json, Trust, parse_options
from duetto.tools.cli.output import print_notices, print_result
from duetto.tools.cli.parser import Arg, Flag, run_function, unknown
from duetto.training.evaluation import PARALLEL, SEED_OFFSET, check_same_spaces
from duetto.training.progress_lines import working
from duetto.training.video import record as record_video

_EXPERT = "A run's folder (the agent acts without exploration), or a class such as those in examples/experts."


def main(arguments: list[str]) -> None:
    """Run one of the `duetto demos` commands."""
    command, *rest = arguments or ["--help"]
    if command in ("-h", "--help"):
        lines = [f"  {example}" for example in COMMANDS.values()]
        usage = f"usage: duetto demos {'|'.join(COMMANDS)} ..."
        print("\n".join([usage, "", "Demonstrations to learn from:", "", *lines, "", "Each has its own --help."]))
        return
    if command not in COMMANDS:
        raise unknown("command", f"demos {command}", [f"demos {name}" for name in COMMANDS])
    run_function(FUNCTIONS[command], f"duetto demos {command}", rest)


# ---------------------------------------------------------------------------------------------------- record
def record(
    environment: EnvironmentId,
    expert: Annotated[str, Arg(_EXPERT, metavar="RUN|FILE.py:CLASS")],
    output: Annotated[str, Arg("The new folder for the dataset.", metavar="FOLDER")],
    episodes: Annotated[int, Arg("Number of episodes.")] = 100,
    seed: Annotated[int, Arg("Seed of the first episode; later episodes use the next seeds.")] = 0,
    only_successes: Annotated[Flag, Arg("Drop episodes with a return of 0 or less.")] = False,
    minimum_return: Annotated[float | None, Arg("Drop episodes with a lower return.", metavar="RETURN")] = None,
    environment_options: EnvironmentOptions = (),
    checkpoint: Checkpoint = "last",
    stochastic: Annotated[Flag, Arg("If the expert is a run: explore as in training.")] = False,
    overwrite: Annotated[Flag, Arg("Replace an existing dataset.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Record episodes of an expert as demonstrations."""
    whole("episodes", episodes, least=1)
    whole("seed", seed, least=0)
    demonstrations.check_free(Path(output), overwrite)
    environment = user_code.absolute(environment)
    options = parse_options(environment_options)
    if user_code.is_file(expert):
        actor, envs, about = _expert_of_file(expert, environment, options)
    elif Path(expert).is_dir():
        run = Run(expert, trust=trust)
        options = run.config.environment_options | options
        actor, envs, about = _expert_of_run(run, environment, options, checkpoint, episodes, trust, stochastic)
    else:
        raise UsageError(f"There is no expert {expert!r}. Give the folder of a run, or FILE.py:CLASS.")

    def keep(score: float) -> bool:
        return (minimum_return is None or score >= minimum_return) and (score > 0 or not only_successes)

    metadata = Metadata(environment, options, about, envs.observation_space, envs.action_space, circumstances())
    try:
        with (
            demonstrations.writer(output, metadata, overwrite) as writer,
            working("recording") as tell,
        ):
            games = demonstrations.record(actor, envs, episodes, seed, keep)
            last = seed
            with suppress(demonstrations.RecordingEndedError):  # complete episodes are kept
                for number, game in enumerate(games, start=1):
                    for part, demonstration in enumerate(game.demonstrations):
                        writer.add(demonstration, game.seed, part)
                    last = game.seed
                    tell(f"recording {number} of {episodes} episodes")
    finally:
        envs.close()
    _print_summary(output, json, last - seed + 1)


def _expert_of_file(text: str, environment: str, options: dict[str, Any]) -> tuple[Expert, VecEnv, str]:
    """Make the expert FILE.py:CLASS and one environment for it; return both, and the expert's name."""
    kind, _ = user_code.load(text, "expert")
    envs = environments.make(environment, render_mode=getattr(kind, "render_mode", None), kwargs=options)
    try:
        expert: Any = kind(envs)
    except BaseException:
        envs.close()
        raise
    return expert, envs, str(getattr(expert, "about", user_code.short(text)))


def _expert_of_run(
    run: Run,
    environment: str,
    options: dict[str, Any],
    checkpoint: str | int,
    episodes: int,
    trusted: bool,
    stochastic: bool,
) -> tuple[Expert, VecEnv, str]:
    """Make an expert of a run's policy; return it, its environments and the expert's name.

    The policy takes its best actions, even if the run's evaluations sample. With `stochastic` it explores as in
    training.
    """
    folder = str(near(run.path))
    agent, config = run.agent(checkpoint), run.config
    print_notices(run.notices)
    if signing.needs_trust("", config.environment_options):  # the run's options name a module, whose code would run
        config.check_trust("environment", folder, trusted)
    envs = environments.make(environment, num_envs=min(episodes, PARALLEL), kwargs=options)
    try:
        check_same_spaces(envs, agent.observation_space, agent.action_space)
    except UsageError:
        envs.close()
        raise
    about = f"{config.algorithm.name()} in {folder}, {checkpoint} checkpoint, step {agent.step}, {agent.fingerprint}"
    policy = agent.policy
    policy.greedy, policy.explores = not stochastic, stochastic
    return policy, envs, about


def _print_summary(output: str, as_json: bool, tried: int | None = None) -> None:
    """Print the contents of a new dataset. `tried` is the number of played episodes."""
    demos = demonstrations.load(output)
    games = demos.parts.count(0)
    tried = games if tried is None else tried
    values = {"file": output, "episodes": games, "steps": demos.steps, "returns": demos.returns.tolist()}
    left = f", {tried - games} left out" if tried > games else ""
    lines = [f"{output}: {games} episodes{left}, {demos.steps:,} steps, return {_return_range(demos)}"]
    if not isinstance(demos.metadata.action_space, Discrete):
        lines.append("bc, dqfd and r2d3 learn from discrete actions only. For other libraries: duetto demos export.")
    print_result(as_json, values | {"tried": tried}, (), *lines, f"See them: duetto demos inspect {output}")


def _return_range(demos: Demonstrations) -> str:
    return f"{demos.returns.mean():.4g} ({demos.returns.min():.4g} to {demos.returns.max():.4g})"


# ---------------------------------------------------------------------------------------------------- export
def export(
    source: Annotated[str, Arg("The folder of the demonstrations.", "DEMOS", is_positional=True)],
    output: Annotated[str, Arg("The new folder for the dataset.", metavar="FOLDER")],
    json: Json = False,
) -> None:
    """Write demonstrations as a Minari dataset, which other libraries read."""
    demos = demonstrations.load(source)
    demonstrations.export_minari(demos, output)
    line = f"{output}: a Minari dataset of {len(demos)} episodes, {demos.steps:,} steps"
    print_result(json, {"file": output, "episodes": len(demos), "steps": demos.steps}, (), line)


# ---------------------------------------------------------------------------------------------------- import
def import_(
    source: Annotated[
        str,
        Arg("A Minari dataset: its folder, or its id in Minari's local folder.", "DATASET", is_positional=True),
    ],
    environment: Annotated[str, Arg("The environment of the dataset.", metavar="ID|FILE.py:CLASS")],
    output: Annotated[str, Arg("The new folder for the dataset.", metavar="FOLDER")],
    environment_options: EnvironmentOptions = (),
    overwrite: Annotated[Flag, Arg("Replace an existing dataset.")] = False,
    json: Json = False,
    trust: Annotated[Flag, Arg("Confirm that you trust the author of the dataset.")] = False,
) -> None:
    """Import a Minari dataset.

    Actions of Box spaces are mapped to [-1, 1], the range of an agent's actions. If the options of an Atari game
    clip rewards or take their logarithm, the import does the same with the dataset's rewards.

    Minari and HDF5 read the dataset in a process with a memory limit (on Linux). This does not protect you from a
    malicious dataset: --trust states that you trust its author.
    """
    environment, kwargs = user_code.absolute(environment), parse_options(environment_options)
    envs = environments.make_eval(environment, kwargs=kwargs)
    spaces = envs.observation_space, envs.action_space
    envs.close()
    metadata = Metadata(environment, kwargs, "", *spaces, circumstances())
    import_minari(source, output, metadata, overwrite=overwrite, trust=trust)
    _print_summary(output, json)


# ---------------------------------------------------------------------------------------------------- inspect
def inspect(
    demos: Annotated[str, Arg("The folder of the demonstrations.", "DEMOS", is_positional=True)],
    video: Annotated[str | None, Arg("Replay an episode and record it.", metavar="FILE.mp4")] = None,
    episode: Annotated[int, Arg("The episode to record with --video, counted from 0.", metavar="K")] = 0,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Print the environment, expert, returns and lengths of demonstrations. With --json, list every episode."""
    loaded = demonstrations.load(demos)
    about = loaded.metadata
    described = {
        "environment": about.environment,
        "options": about.options,
        "expert": about.expert,
        "observations": spell(about.observation_space, bounds=False),
        "actions": spell(about.action_space),
        "versions": about.versions,
    }
    if video is not None:
        references = signing.references(about.environment, about.options)
        signing.check(references, loaded.signature, demos, "environment", trust)
        _record_episode(loaded, episode, Path(video).absolute())
    rows = zip(loaded.seeds, loaded.parts, loaded.returns, loaded.lengths, loaded.terminated, strict=True)
    episodes = [
        {"seed": seed, "part": part, "return": float(total), "steps": int(steps), "terminated": bool(over)}
        for seed, part, total, steps, over in rows
    ]
    lines = [*_lines(loaded, described), *([] if video is None else [video])]
    print_result(json, {"file": demos, **described, "episodes": episodes, "video": video}, (), *lines)


def _lines(demos: Demonstrations, described: dict[str, Any]) -> list[str]:
    """Return a summary of demonstrations as lines of text."""
    terminated = int(demos.terminated.sum())
    lengths = f"{demos.lengths.mean():.4g} ({demos.lengths.min()} to {demos.lengths.max()}), {demos.steps:,} in all"
    counted = f"{len(demos)}: {terminated} terminated, {len(demos) - terminated} truncated"
    described = described | {"episodes": counted, "return": _return_range(demos), "steps": lengths}
    texts = {
        name: ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        for name, value in described.items()
    }
    return [f"{name:13} {text}" for name, text in texts.items() if text]


def _record_episode(demos: Demonstrations, number: int, path: Path) -> None:
    """Replay an episode to a video. If the replay ends too early, delete the video and raise UsageError."""
    player = EpisodePlayer(demos, number)
    about = demos.metadata
    envs = environments.make(about.environment, render_mode="rgb_array", kwargs=about.options)
    try:
        record_video(player, envs, player.seed - SEED_OFFSET, path)
    finally:
        envs.close()
    if not player.finished:
        path.unlink()
        raise UsageError(f"Episode {number} of {demos.source} cannot be replayed: it ends too early.")


FUNCTIONS: dict[str, Callable[..., None]] = {"record": record, "export": export, "import": import_, "inspect": inspect}
COMMANDS = {  # an example of each command
    "record": "duetto demos record Pendulum-v1 --expert runs/td3-Pendulum-v1-s0 --episodes 100 --output demos/pendulum",
    "export": "duetto demos export demos/pendulum --output minari/pendulum",
    "import": "duetto demos import lander/human-v0 --environment LunarLander-v3 --output demos/lander --trust",
    "inspect": "duetto demos inspect demos/pendulum --video first.mp4",
}
