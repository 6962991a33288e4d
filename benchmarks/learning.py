"""The learning results: start, stop and continue the runs that `jobs.yaml` names, and report their results.

    python benchmarks/learning.py list
    python benchmarks/learning.py run td3-halfcheetah --seeds 0 1 2 --jobs 2
                                                                        Ctrl-C stops; the same command continues
    python benchmarks/learning.py collect td3-halfcheetah               copy the results so far to results/learning
    python benchmarks/learning.py report                                results/learning.md, figures

Each run is a `duetto train` command, trained as part of a sweep in `--runs-dir`. `collect` copies its evaluations and
its config (command, versions, commit) to `results/learning/<job>-s<seed>/`, and replaces those there, except
`final.csv`. If the job has an entry `final`, `final.csv` has every episode of one more evaluation of the last policy.

The report uses only these files. Curves and bands are those of `duetto plot`. The first table has four numbers of each
job, since publications report different numbers: the maximum of the mean over seeds, the mean of the seeds' maxima, the
last evaluation, and the mean of the last ten.
"""

from __future__ import annotations

import argparse
import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from report import table
from rich.console import Console

from duetto.storage import safe_yaml
from duetto.tools.cli.train import experiment
from duetto.tools.plot.curves import draw as draw_curve
from duetto.tools.plot.curves import finish, height_of, interquartile, new_figure, save
from duetto.tools.sweep.api import RunResult, conduct
from duetto.tools.sweep.display import SweepDisplay

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "learning"
FEWEST = 3  # seeds from which an interval is computed
ROUNDED = (
    "†: in bfloat16, from before 25 November 2026. Network outputs were rounded to bfloat16 (near 300, to even "
    "numbers); now they are float32. The effect on these runs was not measured."
)


@dataclass(frozen=True)
class Job:
    """A named job; `jobs.yaml` explains its entries."""

    name: str
    train: str
    seeds: tuple[int, ...]
    final: int = 0
    success: bool = False  # report the share of final episodes with a return above 0
    level: float | None = None
    published: dict[str, Any] = field(default_factory=dict)

    def run_name(self, seed: int) -> str:
        return f"{self.name}-s{seed}"


Runs = tuple[Job, Sequence[int]]  # a job and the seeds of its runs


def jobs() -> dict[str, Job]:
    """Return all jobs by name."""
    return {name: Job(name, **entry | {"seeds": tuple(entry["seeds"])}) for name, entry in _data()["jobs"].items()}


def figures() -> dict[str, dict[str, Any]]:
    """Return the figures by name, each as a dict with its title and its jobs by label."""
    return _data()["figures"]


def rounded() -> set[str]:
    """Return the names of runs in bfloat16 from before a change of the mathematics; see `jobs.yaml`."""
    return set(_data()["rounded"])


def _data() -> dict[str, Any]:
    return safe_yaml.parse((HERE / "jobs.yaml").read_text("utf-8"))


def run(chosen: Sequence[Runs], folder: Path, jobs: int) -> None:
    """Start the runs of jobs, or continue them; complete runs are skipped."""
    for job, seeds in chosen:
        if "--cluster" in job.train:  # runs on a cluster start their own processes
            _on_a_cluster(job, seeds, folder)
    chosen = [one for one in chosen if "--cluster" not in one[0].train]
    later = [(job, seeds) for job, seeds in chosen if (wanted := demonstrations(job)) and not wanted.exists()]
    failed = _swept([one for one in chosen if one not in later], folder, jobs)
    for job, _ in later:  # their expert may have been one of the runs above
        record(job, folder)
    failed += _swept(later, folder, jobs)
    if failed:
        raise SystemExit("\n".join(f"{one.path} failed; see {one.log}" for one in failed))


def _swept(chosen: Sequence[Runs], folder: Path, jobs: int) -> list[RunResult]:
    """Train all runs as one sweep; return the failed ones."""
    if not chosen:
        return []
    settings = [experiment(job.name, shlex.split(job.train), seeds) for job, seeds in chosen]
    with SweepDisplay(Console()) as display:
        found = conduct(settings, folder, jobs, display)
    display.finish(found)
    if found.stopped:
        raise SystemExit(130)  # the display has said how to continue
    return list(found.failed)


def _on_a_cluster(job: Job, seeds: Sequence[int], folder: Path) -> None:
    """Train the runs of a job with --cluster, one after the other."""
    for seed in seeds:
        path = folder / job.run_name(seed)
        left = steps_left(path)
        if left is None:
            _duetto(
                "train", *shlex.split(job.train), "--seed", str(seed), "--runs-dir", str(folder), "--name", path.name
            )
        elif left:
            _duetto("resume", str(path))


def demonstrations(job: Job) -> Path | None:
    """Return the folder of the demonstrations that a job needs."""
    arguments = shlex.split(job.train)
    return Path(arguments[arguments.index("--demonstrations") + 1]) if "--demonstrations" in arguments else None


def record(job: Job, folder: Path) -> None:
    """Record the demonstrations that a job needs, unless they exist."""
    wanted = demonstrations(job)
    if wanted is not None and not wanted.exists():
        how = _data()["demonstrations"][str(wanted)].format(runs=folder)
        _duetto("demos", *shlex.split(how), "--output", str(wanted))


def _duetto(*arguments: str) -> None:
    process = subprocess.Popen([sys.executable, "-m", "duetto", *arguments])
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the process has also received the signal
        process.wait()
        raise SystemExit("Stopped. Continue with the same command.") from None
    if code:
        raise SystemExit(f"duetto {shlex.join(arguments)} failed; see above.")


def steps_left(folder: Path) -> int | None:
    """Return the steps that remain of a run; None if it has no checkpoint."""
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    if not checkpoints:
        return None
    config = safe_yaml.read_yaml(folder / "config.yaml")
    made = max(int(found.group(1)) for path in checkpoints if (found := re.search(r"step-(\d+)", path.name)))
    return max(config["run"]["steps"] - made, 0)


def collect(job: Job, seed: int, runs: Path) -> bool:
    """Copy a run's results so far; return whether there are any."""
    folder, results = runs / job.run_name(seed), RESULTS / job.run_name(seed)
    if not (folder / "evaluations.csv").exists():
        return False
    results.mkdir(parents=True, exist_ok=True)
    (results / "evaluations.csv").write_bytes((folder / "evaluations.csv").read_bytes())
    config = (folder / "config.yaml").read_text("utf-8")
    config = re.sub(r"command: .*?\n(?=\S)", f"command: duetto train {job.train} --seed {seed}\n", config, flags=re.S)
    (results / "config.yaml").write_text(config, "utf-8")
    if job.final and steps_left(folder) == 0 and not (results / "final.csv").exists():
        _final(folder, results / "final.csv", job.final)
    return True


def _final(folder: Path, path: Path, episodes: int) -> None:
    import duetto

    evaluation = duetto.Run(folder).evaluate(episodes=episodes, seed=1_000)  # not the episodes of the curve
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["episode", "return", "length"])
        rows.writerows(zip(range(episodes), evaluation.returns, evaluation.lengths, strict=True))


# ---------------------------------------------------------------------------------------------------- committed results
@dataclass(frozen=True)
class Results:
    """The committed results of one job. A curve ends where its shortest seed ends."""

    job: Job
    seeds: tuple[int, ...]
    steps: np.ndarray  # (T,)
    returns: np.ndarray  # (seeds, T), means over an evaluation's episodes
    seconds: np.ndarray  # (seeds, T), since the run started, without the time between a stop and its resume
    planned: int
    final: dict[int, np.ndarray]  # returns of the episodes in `final.csv`, by seed
    commits: tuple[str, ...]
    processors: tuple[str, ...]  # the processors that the configs of the runs name
    incomplete: dict[int, int]  # steps by seed of incomplete runs, which are left out if other runs are complete

    @property
    def complete(self) -> bool:
        return int(self.steps[-1]) >= self.planned


def load(job: Job) -> Results | None:
    """Read the results of a job; None if there are none."""
    folders = {seed: RESULTS / job.run_name(seed) for seed in range(1_000)}
    folders = {seed: folder for seed, folder in folders.items() if (folder / "evaluations.csv").exists()}
    if not folders:
        return None
    tables = {
        seed: _columns(folder / "evaluations.csv", "step", "mean_return", "seconds") for seed, folder in folders.items()
    }
    configs = {seed: safe_yaml.read_yaml(folder / "config.yaml") for seed, folder in folders.items()}
    planned = {seed: config["run"]["steps"] for seed, config in configs.items()}
    incomplete = {seed: int(steps[-1]) for seed, (steps, *_) in tables.items() if steps[-1] < planned[seed]}
    if len(incomplete) == len(folders):  # none is complete: use all
        incomplete = {}
    folders = {seed: folder for seed, folder in folders.items() if seed not in incomplete}
    curves, configs = [tables[seed] for seed in folders], [configs[seed] for seed in folders]
    shortest = min(len(steps) for steps, *_ in curves)
    return Results(
        job=job,
        seeds=tuple(folders),
        steps=curves[0][0][:shortest],
        returns=np.stack([returns[:shortest] for _, returns, _ in curves]),
        seconds=np.stack([seconds[:shortest] for *_, seconds in curves]),
        planned=configs[0]["run"]["steps"],
        final={
            seed: _columns(folder / "final.csv", "return")[0]
            for seed, folder in folders.items()
            if (folder / "final.csv").exists()
        },
        commits=tuple(sorted({config["versions"]["git"] for config in configs})),
        processors=tuple(sorted({c["versions"]["processor"] for c in configs if "processor" in c["versions"]})),
        incomplete=incomplete,
    )


def _columns(path: Path, *names: str) -> list[np.ndarray]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [np.array([float(row[name]) for row in rows]) for name in names]


# ---------------------------------------------------------------------------------------------------- the tables
def report(jobs: list[Job], figures: dict[str, dict[str, Any]]) -> None:
    """Write `results/learning.md` and every figure that has runs."""
    found = {job.name: results for job in jobs if (results := load(job))}
    drawn = [name for name, figure in figures.items() if draw(name, figure, found)]
    text = "\n\n".join(
        [
            "# Learning results",
            "Made by `python benchmarks/learning.py report` from the CSVs in `learning/`; `jobs.yaml` has commands. "
            "Ten episodes per evaluation, or as many as the preset says, in separate environments. A run whose "
            "steps end before those planned is not finished; it counts only where no other seed of its job is.",
            ROUNDED,
            table(
                (
                    "run",
                    "seeds",
                    "steps",
                    "best of the mean",
                    "mean of the bests",
                    "last",
                    "mean of last ten",
                    "commit",
                ),
                [_row(results) for results in found.values()],
            ),
            "## Steps to a level, and last evaluations of more episodes",
            "The level is first reached by an evaluation of the mean over seeds, by the median seed, by each seed.",
            table(
                ("run", "level", "mean of seeds", "median seed", "each seed", "final episodes", "mean", "successes"),
                [_more(results) for results in found.values() if results.job.level is not None or results.final],
            ),
            "## Interquartile means",
            "Of three seeds or more, with the 95 % stratified bootstrap interval (Agarwal et al., 2021): of the last "
            "evaluation, or of the one with more episodes where there is one.",
            table(
                ("run", "seeds", "interquartile mean", "95 % interval"),
                [_middle(results) for results in found.values() if len(results.seeds) >= FEWEST],
            ),
            "## What it costs",
            "Times of the median seed, evaluations included, to its end and to the level; steps/s are those of the "
            "whole. Runs had two cores or one, often shared with other work, so they are upper bounds. The "
            "processor is named where the run recorded it; earlier ones had an AMD EPYC (Zen 5) or an Intel Xeon.",
            table(
                ("run", "steps", "time", "steps/s", "level", "time to it", "processor"),
                [_cost(results) for results in found.values()],
            ),
            "## Compared with published results",
            "Ours is the mean of the last evaluation, or of the one with more episodes. Protocols differ (versions of "
            "environments, seeds, which of the four numbers); the labels say how.",
            table(("run", "ours", "published"), [_beside(r) for r in found.values() if r.job.published]),
            *[f"![{figures[name]['title']}](learning/{name}.png)" for name in drawn],
        ]
    )
    path = RESULTS.parent / "learning.md"
    path.write_text(text + "\n", "utf-8")
    print(path, *[RESULTS / f"{name}.png" for name in drawn], sep="\n")


def _row(results: Results) -> tuple[str, ...]:
    returns = results.returns
    made = f"{int(results.steps[-1]):,}" + ("" if results.complete else f" of {results.planned:,}")
    numbers = (returns.mean(0).max(), returns.max(1).mean(), returns[:, -1].mean(), returns[:, -10:].mean())
    incomplete = "".join(f" ({seed} is at {step:,})" for seed, step in results.incomplete.items())
    mark = " †" if rounded().intersection(map(results.job.run_name, results.seeds)) else ""
    return (
        results.job.name + mark,
        ", ".join(map(str, results.seeds)) + incomplete,
        made,
        *(_number(number) for number in numbers),
        ", ".join(results.commits),
    )


def _more(results: Results) -> tuple[str, ...]:
    level, final = results.job.level, list(results.final.values())
    reached = ("", "", "", "")
    if level is not None:
        each = [_first(results.steps, curve, level) for curve in results.returns]
        together = _first(results.steps, results.returns.mean(0), level)
        reached = (f"{level:,}", *map(_steps, (together, float(np.median(each)))), ", ".join(map(_steps, each)))
    return (
        results.job.name,
        *reached,
        " + ".join(str(len(one)) for one in final),
        ", ".join(_number(one.mean()) for one in final),
        ", ".join(f"{(one > 0).mean():.3f}" for one in final) if results.job.success else "",
    )


def _middle(results: Results) -> tuple[str, ...]:
    last = [one.mean() for one in results.final.values()]
    scores = np.array(last if len(last) == len(results.seeds) else results.returns[:, -1])
    [point], interval = interquartile(scores[:, None])
    ends = "-" if interval is None else " to ".join(_number(end) for [end] in interval)
    return results.job.name, str(len(scores)), _number(point), ends


def _cost(results: Results) -> tuple[str, ...]:
    level, hours = results.job.level, results.seconds / 3600
    whole, reached = float(np.median(hours[:, -1])), ""
    if level is not None:
        each = [_first(own, curve, level) for own, curve in zip(hours, results.returns, strict=True)]
        reached = _time(float(np.median(each)))
    steps = int(results.steps[-1])
    speed = f"{steps / whole / 3600:,.0f}"
    where = ", ".join(name.partition(" (")[0] for name in results.processors)
    of_level = "" if level is None else f"{level:,}"
    return results.job.name, f"{steps:,}", _time(whole), speed, of_level, reached, where


def _time(hours: float) -> str:
    if not np.isfinite(hours):
        return "never"
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min" if hours >= 0.1 else f"{60 * hours:.1f} min"


def _first(steps: np.ndarray, curve: np.ndarray, level: float) -> float:
    above = np.flatnonzero(curve >= level)
    return float(steps[above[0]]) if len(above) else np.inf


def _steps(steps: float) -> str:
    return f"{steps:,.0f}" if np.isfinite(steps) else "never"


def _beside(results: Results) -> tuple[str, str, str]:
    points = {
        label: value[-1][1] if isinstance(value, list) else value for label, value in results.job.published.items()
    }
    last = [one.mean() for one in results.final.values()] or list(results.returns[:, -1])
    ours = f"{_number(float(np.mean(last)))} ({len(last)} seeds)".replace("(1 seeds)", "(1 seed)")
    if not results.complete:
        ours += f", at {int(results.steps[-1]):,} steps"
    return results.job.name, ours, "; ".join(f"{_number(value)}: {label}" for label, value in points.items())


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1_000 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}"


# ---------------------------------------------------------------------------------------------------- the figures
def draw(name: str, figure: dict[str, Any], found: dict[str, Results]) -> bool:
    """Draw one figure; return whether it has runs."""
    there = {label: found[job] for label, job in figure["jobs"].items() if job in found}
    if not there:
        return False
    published = _published(there)
    canvas = new_figure(width=7, height=height_of([*there, *(label for label, _ in published)]))
    axes = canvas.subplots()
    styles = {label: number for number, label in enumerate(figure["jobs"])}
    for label, results in there.items():
        remark = "" if results.complete else ", not finished"
        draw_curve(axes, label, results.steps, results.returns, styles[label], remark)
    for number, (label, value) in enumerate(published):
        color = f"C{len(styles) + number}"
        if isinstance(value, list):
            axes.plot(*zip(*value, strict=True), color=color, linestyle="--", marker="o", markersize=3, label=label)
        else:
            axes.axhline(value, color=color, linestyle=":", linewidth=1.2, label=label)
    finish(axes, figure["title"], "mean return")
    save(canvas, RESULTS / f"{name}.png")
    return True


def _published(there: dict[str, Results]) -> list[tuple[str, Any]]:
    """Return each published number once, with a label that names its jobs, unless all jobs have it."""
    labels: dict[tuple[str, str], list[str]] = {}
    values: dict[tuple[str, str], Any] = {}
    for label, results in there.items():
        for source, value in results.job.published.items():
            labels.setdefault((source, repr(value)), []).append(label)
            values[source, repr(value)] = value
    of_all = {key for key, owners in labels.items() if len(owners) == len(there)}
    return [(key[0] if key in of_all else f"{' and '.join(labels[key])}: {key[0]}", values[key]) for key in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the jobs")
    collecting = "copy results to results/learning, in place of published ones except final.csv"
    for name, text in (("run", "start jobs or continue them"), ("collect", collecting)):
        command = commands.add_parser(name, help=text)
        command.add_argument("names", nargs="+" if name == "run" else "*", metavar="JOB")
        command.add_argument("--seeds", type=int, nargs="+", help="those of the job, by default")
        command.add_argument("--runs-dir", type=Path, default=Path("runs") / "learning")
        if name == "run":
            command.add_argument("--jobs", type=int, default=1, help="runs at a time")
    commands.add_parser("report", help="tables and figures from the results")
    options = parser.parse_args()

    known = jobs()
    if options.command == "list":
        for job in known.values():
            print(f"{job.name:36}{job.train}  (seeds {', '.join(map(str, job.seeds))})")
        return
    if options.command == "report":
        report(list(known.values()), figures())
        return
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown jobs {', '.join(unknown)}; see: python benchmarks/learning.py list")
    chosen = [(job, options.seeds or job.seeds) for job in (known[name] for name in options.names or known)]
    if options.command == "run":
        run(chosen, options.runs_dir, options.jobs)
        return
    for job, seeds in chosen:
        for seed in seeds:
            collect(job, seed, options.runs_dir)


if __name__ == "__main__":
    main()
