"""Commands that are one function each. The function's parameters are the options, its docstring is the help."""

from __future__ import annotations

import json as json_file
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from duetto.errors import DuettoError, escaped
from duetto.tools.cli import options as shared
from duetto.tools.cli.options import Checkpoint, EnvironmentOptions, Json, Quiet, RunFolder, Runs, Trust
from duetto.tools.cli.output import print_json, print_result, wrapped
from duetto.tools.cli.parser import Arg, Flag, Texts
from duetto.training.progress_lines import say, working

Repository = Annotated[str, Arg("The run's repository on the Hub; push creates it.", "USER/NAME", is_positional=True)]


# ---------------------------------------------------------------------------------------------------- one run
def resume(
    run: RunFolder,
    steps: Annotated[int | None, Arg("Total number of steps; by default the run's.")] = None,
    accept_changes: Annotated[
        Flag, Arg("Continue with changed options of config.yaml, such as a learning rate.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
    trust: Trust = False,
    cluster: shared.Address = None,
    actors: shared.Actors = None,
    mode: shared.AnyMode = None,
    block: shared.Blocks = None,
    replay_shards: shared.ReplayShards = None,
    stop_at_return: shared.StopAtReturn = None,
    time_limit: shared.TimeLimit = None,
    video_every: shared.VideoEvery = None,
    track: shared.Track = None,
) -> None:
    """Continue a run exactly from its last checkpoint, also after kill -9.

    A run that was started on a cluster needs --cluster again. It keeps its mode, its block length and, in the mode
    sync, its number of actors.

    steps, schedule_steps, threads, vectorization, worker_timeout, keep, evaluation_episodes, and the intervals of
    evaluations, checkpoints and metrics may be changed in config.yaml; Duetto reports whether a change affects the
    results. Changes of other options that affect the results need --accept-changes.
    """
    from duetto.training.progress import shown

    options = locals()
    placed = shared.cluster(options)
    doing = f"{run}: reading the checkpoint, making environments and networks"
    with shown(Console(stderr=json), doing, quiet or json) as display:
        from duetto.runs.run import Run  # slow to import, so the display starts first

        callbacks = shared.callbacks(options)
        resumed = Run(run, trust=trust)
        resumed.resume_with([display, *callbacks], {} if steps is None else {"steps": steps}, accept_changes, placed)
    display.finish(resumed.path)
    if json:
        print_json(display.summaries([resumed.path])[0])


def evaluate(
    run: RunFolder,
    episodes: Annotated[int, Arg("Number of episodes.")] = 10,
    checkpoint: Checkpoint = "last",
    seed: Annotated[int | None, Arg("Seed of the initial states; by default the run's.")] = None,
    environment: Annotated[str | None, Arg("Another environment with the same spaces.", "ID|FILE.py:CLASS")] = None,
    environment_options: EnvironmentOptions = (),
    stochastic: Annotated[Flag, Arg("Explore as in training.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Evaluate the agent: play episodes and print their returns.

    The agent acts as in the run's evaluations: without exploration, unless an option turns it on (as in the presets
    for Atari). With --environment, the run's environment options do not apply.
    """
    from duetto.runs.run import Run

    options = shared.parse_options(environment_options)
    trained = Run(run, trust=trust)
    with working(f"evaluating {run}") as tell:
        result = trained.evaluate(episodes, checkpoint, seed, tell, environment, options, stochastic)
    pairs = enumerate(zip(result.returns, result.lengths, strict=True), start=1)
    lines = [f"episode {number:3d}  return {total:10.2f}  steps {length:6d}" for number, (total, length) in pairs]
    values = {"run": run, "checkpoint": checkpoint, **result.to_dict()}
    print_result(json, values, trained.notices, *lines, f"mean return {result}")


def video(
    run: RunFolder,
    output: Annotated[str | None, Arg("The mp4 file; by default in videos/ in the run's folder.", "FILE")] = None,
    checkpoint: Checkpoint = "last",
    seed: Annotated[int | None, Arg("Seed of the initial state; by default the run's.")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Record an episode as an mp4. The agent acts as in the run's evaluations."""
    from duetto.runs.run import Run

    trained = Run(run, trust=trust)
    with working(f"recording {run}") as tell:
        path = trained.video(output, checkpoint, seed, tell)
    values = {"file": str(path), "run": run, "checkpoint": checkpoint}
    print_result(json, values, trained.notices, str(path))


def watch(
    run: RunFolder,
    episodes: Annotated[int, Arg("Number of episodes; 0: until Ctrl-C.")] = 1,
    checkpoint: Checkpoint = "last",
    seed: Annotated[int | None, Arg("Seed of the first initial state; by default the run's.")] = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Show the agent live in the environment's own window. The agent acts as in the run's evaluations."""
    from duetto.runs.run import Run

    trained = Run(run, trust=trust)
    seen = trained.watch(episodes, checkpoint, seed, lambda text: None if json else print(text, flush=True))
    scores = {"returns": [each.total_reward for each in seen], "lengths": [each.length for each in seen]}
    print_result(json, {"run": run, "checkpoint": checkpoint, **scores}, trained.notices)


def export(
    run: RunFolder,
    format: Annotated[
        Literal["onnx", "torch", "jax"], Arg("For ONNX Runtime (onnx), torch.export.load (torch) or jax.export (jax).")
    ] = "onnx",
    output: Annotated[str | None, Arg("The file; by default in the run's folder.", "FILE")] = None,
    checkpoint: Checkpoint = "last",
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the agent as one graph, from observations to actions in the environment's units.

    Duetto runs the graph in the run's environment, and keeps the file only if it acts as the agent does. FILE.json
    describes the inputs and outputs.
    """
    from duetto.runs.run import Run
    from duetto.tools.export.writing import export as write

    trained = Run(run, trust=trust)
    with working(f"writing and testing the graph of {run}"):
        path = write(trained, format, output, checkpoint)
    about = json_file.loads(Path(f"{path}.json").read_text("utf-8"))
    checked = about["checked"]
    differing = f", {checked['differing']} discrete actions differ" if checked["differing"] else ""
    line = (
        f"{path}: acts as the agent of step {about['step']:,} on {checked['observations']} observations (largest "
        f"difference {checked['largest_difference']:.0e} of the range{differing})."
    )
    values = {"run": run, "checkpoint": checkpoint, **about, "file": str(path)}
    print_result(json, values, trained.notices, line)


# ---------------------------------------------------------------------------------------------------- the Hub
def push(
    run: RunFolder,
    repository: Repository,
    checkpoint: Checkpoint = "last",
    episodes: Annotated[int, Arg("Number of evaluation episodes for the model card.")] = 10,
    seed: Annotated[int | None, Arg("Seed of the evaluation; by default the run's.")] = None,
    video: Annotated[bool, Arg("Record an episode.")] = True,
    memory: Annotated[Flag, Arg("Send the replay buffer, for an exact resume.")] = False,
    private: Annotated[Flag, Arg("Make a new repository private.")] = False,
    dry_run: Annotated[Flag, Arg("Write all files into hub/NAME, list them, and send nothing.")] = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Send a run to the Hugging Face Hub, with a model card, an evaluation and a video.

    Log in first: `hf auth login`. Signatures, callbacks' states and paths on this machine are not sent.
    """
    given = {name: value for name, value in locals().items() if name not in ("run", "json", "trust")}
    from duetto.runs.run import Run
    from duetto.tools.hub import push as push_run

    trained = Run(run, trust=trust)
    with working(f"pushing {run}") as tell:
        pushed = push_run(trained, **given, tell=tell)
    values = {"run": run, **pushed._asdict(), "evaluation": pushed.evaluation.to_dict(), "sent": not dry_run}
    lines = [f"{size:12,}  {name}" for name, size in pushed.files.items()]
    sent = "nothing was sent" if dry_run else f"sent to {repository}"
    print_result(json, values, pushed.notices, *lines, f"mean return {pushed.evaluation}", f"{pushed.where}: {sent}.")


def pull(
    repository: Repository,
    output: Annotated[str | None, Arg("The new folder; by default runs/NAME.", "FOLDER")] = None,
    at_most: Annotated[float, Arg("Refuse a run that is larger than this.", "GB")] = 5.0,
    json: Json = False,
) -> None:
    """Fetch a run from the Hugging Face Hub, to evaluate, record or resume it.

    Duetto downloads only files that belong to a run, and runs no code from the repository.
    """
    from duetto.tools.hub import fetch

    with working(f"pulling {repository}") as tell:
        pulled = fetch(repository, output, at_most=at_most, tell=tell)
    size = sum(pulled.files.values()) / 1e6
    line = f"{pulled.path}: {len(pulled.files)} files, {size:.1f} MB, of commit {pulled.commit}."
    values = {"repository": repository, **pulled._asdict(), "path": str(pulled.path)}
    print_result(json, values, pulled.notices, line, f"See it: duetto video {pulled.path}")


# ---------------------------------------------------------------------------------------------------- several runs
def plot(
    runs: Runs,
    output: Annotated[str, Arg("The picture: .png, .svg or .pdf.", "FILE")] = "curves.png",
    metric: shared.Metric = "mean_return",
    json: Json = False,
) -> None:
    """Draw learning curves, one panel per environment.

    Runs that differ only in their seed make one curve, with a band from three seeds on.
    """
    from duetto.tools.plot.curves import plot as draw

    path = str(draw(runs, output, metric))
    print_result(json, {"file": path}, (), path)


def report(
    runs: Runs,
    output: Annotated[str, Arg("The page: .html.", "FILE")] = "report.html",
    metric: shared.Metric = "mean_return",
    json: Json = False,
) -> None:
    """Write an HTML report on runs: results, curves, metrics (each with the range that is healthy), commands.

    The page is one file and needs no network.
    """
    from duetto.tools.report.report import report as write

    with working("writing the report"):
        path = str(write(runs, output, metric))
    print_result(json, {"file": path}, (), path)


def table(
    runs: Runs,
    output: Annotated[str | None, Arg("A .csv file; by default the table is printed.", "FILE")] = None,
    metric: Annotated[Texts, Arg("Columns of evaluations.csv or keys of metrics.jsonl.", "NAME ...")] = (
        "mean_return",
    ),
    json: Json = False,
) -> None:
    """Write results as a tidy table: exp_name, env_name, seed, metric, env_step, value.

    The metric mean_return is written as avg_return.
    """
    from duetto.tools.plot import table as tables

    rows = tables.table(runs, output, metric)
    if output is not None:
        print_result(json, {"file": output, "rows": len(rows)}, (), output)
    elif json:
        print_json({"rows": [row._asdict() for row in rows]})
    else:
        print(tables.written(rows), end="")


# ---------------------------------------------------------------------------------------------------- no run
def check(
    environment: shared.EnvironmentId,
    environment_options: EnvironmentOptions = (),
    steps: Annotated[int, Arg("Maximum number of random steps.")] = 2_000,
    timeout: Annotated[float, Arg("Seconds after which a call counts as a hang.", "SECONDS")] = 60.0,
    json: Json = False,
) -> None:
    """Check an environment against Gymnasium's and Duetto's rules, and suggest remedies.

    Trains nothing and writes nothing. Exits with 1 if something is broken.
    """
    from duetto.environments import check as checker

    options = shared.parse_options(environment_options)
    with working(f"checking {environment}"):
        findings = checker.check(environment, environment_options=options, steps=steps, timeout=timeout)
    broken = [finding.about for finding in findings if finding.level == "broken"]
    if json:
        print_json({"environment": environment, "broken": len(broken), "findings": [vars(each) for each in findings]})
    else:
        _print_findings(findings)
    if broken:
        raise DuettoError(f"{environment} is broken in {len(broken)} point(s): {', '.join(dict.fromkeys(broken))}.")


def _print_findings(findings: list[Any]) -> None:
    titles = {
        "broken": "Broken: training fails or learns the wrong thing",
        "costs": "Warnings: training works, but note these",
        "fine": "Passed",
    }
    for level, title in titles.items():
        found = [finding for finding in findings if finding.level == level]
        if found:
            say(Console(), title, "bold")
        for finding in found:
            print(escaped(wrapped(f"{finding.about}: {finding.sentence}", "  ", "    ")))


def list_(
    what: Annotated[
        Literal["all", "algorithms", "environments", "presets"],
        Arg("The list to print, with details.", "algorithms|environments|presets", is_positional=True),
    ] = "all",
    json: Json = False,
) -> None:
    """List algorithms, presets, and environment families with the extras that they need."""
    listed = _everything()
    if json:
        print_json(listed if what == "all" else {what: listed[what]})
        return
    if what != "all":
        for name, about in listed[what].items():
            texts = [f"{key}: {text}".removeprefix("about: ") for key, text in about.items()]
            print("\n".join([name, *(wrapped(text, "  ") for text in texts)]))
        return
    for name, about in listed["algorithms"].items():  # short, so that everything fits on one screen
        print(wrapped(f"{name:12} {about['actions']}: {', '.join(listed['presets'][name])}", "  ", " " * 15))
    for title in ("environments", "extras"):
        print(wrapped(f"{title.title()}: {', '.join(listed[title])}"))
    for extra, command in listed["extras"].items():
        if command:
            print(f"Install {extra}: {command}")
    print("More: duetto list algorithms, duetto list environments, duetto list presets")


def _everything() -> dict[str, Any]:
    """Return all lists as JSON values. An extra's value is its install command if it is missing, else an empty text."""
    from duetto.algorithms import ALGORITHMS
    from duetto.environments import FAMILIES
    from duetto.install_hint import install, is_installed, names
    from duetto.presets import presets

    extras = [name for name in names() if name not in ("all", "dev", "docs")]
    missing = {name: "" if is_installed(name) else install(name) for name in extras}
    return {
        "algorithms": {
            name: {
                "about": (kind.__doc__ or "").split("\n\n")[0].strip(),
                "observations": kind.observations,
                "actions": kind.actions,
            }
            for name, kind in ALGORITHMS.items()
        },
        "environments": {
            family.name: {
                "examples": ", ".join(family.examples),
                "extra": family.extra,
                "installed": not missing[family.extra],
            }
            for family in FAMILIES
        },
        "presets": {name: {key: entry.about for key, entry in presets(name).items()} for name in ALGORITHMS},
        "extras": missing,
    }


FUNCTIONS: dict[str, Callable[..., None]] = {
    each.__name__.removesuffix("_"): each
    for each in (resume, evaluate, video, watch, export, push, pull, plot, report, table, check, list_)
}
