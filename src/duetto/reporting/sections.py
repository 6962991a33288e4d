"""The parts of a report, in their order; what they show of a stranger's folder is text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from duetto.display import tidy
from duetto.display.curves import Group, Member, Recorded
from duetto.display.series import Series
from duetto.errors import DuettoError
from duetto.reporting import films, meanings
from duetto.reporting.charts import BANDED, LONGEST, Chart, Drawn
from duetto.reporting.markup import Html, joined, table, tag, with_code
from duetto.storage import remaking, within
from duetto.storage.yaml_files import LARGEST

_LONGEST_CONFIG = 2**16  # characters of a configuration
_MOST_DIFFERENCES = 60
_FIRST = (("algorithm", "name"), ("environment", "id"))


def short(value: object, most: int = LONGEST) -> str:
    """A text cut to a length that a page can show."""
    words = str(value)
    return words if len(words) <= most else f"{words[:most]}… ({len(words):,} characters)"


def number(value: float) -> str:
    """A number as text with few digits, and a minus as wide as a plus; "–" if it is not finite."""
    if not np.isfinite(value):
        return "–"
    size = abs(value)
    words = f"{value:,.0f}" if size >= 1_000 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"
    return words.replace("-", "−")


def steps(value: float) -> str:
    """A number of steps as text."""
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """A duration in seconds as text, in h, min or s."""
    if not np.isfinite(seconds):
        return "–"
    for size, unit in ((3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"


# ---------------------------------------------------------------------------------------------------- results
def overview(drawn: Sequence[Drawn], metric: str) -> Html:
    """The table of results, with a row for each curve: its last value, and how certain that is."""
    rows = [
        [
            short(one.group.label),
            short(one.group.environment),
            len(one.group.members),
            steps(one.curve.steps[-1]),
            number(one.last),
            "–" if one.interval is None else f"{number(one.interval[0, -1])} to {number(one.interval[1, -1])}",
            number(one.greatest),
        ]
        for one in drawn
    ]
    head = ["curve", "environment", "seeds", "steps", f"{_words(metric)} at the end", "95 % interval", "greatest"]
    few = any(len(one.group.members) < BANDED for one in drawn)
    note = (
        f"Over seeds: the interquartile mean and its stratified bootstrap interval, of {BANDED} seeds or more"
        f"{'; of fewer the mean, without an interval' if few else ''}. A curve ends where its shortest seed ends."
    )
    return joined(table(head, rows, numbers=5), tag("p", note, class_="quiet"))


def returns(charts: Sequence[Chart], drawn: Sequence[Drawn], legend: Html, metric: str) -> Html:
    """The charts of the returns, one for each environment."""
    several = any("low" in curve for chart in charts for curve in chart.data["curves"])
    box = tag("label", tag("input", type="checkbox", id="every-seed"), " every seed")
    figures = [
        tag(
            "figure",
            tag("h3", short(chart.environment)),
            _plot(place, f"{_words(metric)} by steps in {short(chart.environment)}"),
            tag("figcaption", _seeds([one for one in drawn if one.group.environment == chart.environment])),
            *_health(chart),
        )
        for place, chart in enumerate(charts)
    ]
    return joined(tag("div", legend, box if several else "", class_="legend"), *figures)


def legend(groups: Sequence[Group], charts: Sequence[Chart]) -> Html:
    """A legend with a button for each of the groups' curves in the charts, which hides it; "" if there is one curve."""
    labels = list(dict.fromkeys(group.label for group in groups))
    drawn = {group.label for chart in charts for group in chart.groups}
    if len(labels) < 2:
        return Html("")
    swatch = Html(
        '<svg viewBox="0 0 26 10" aria-hidden="true"><line x1="0" y1="5" x2="26" y2="5" stroke-width="3"/></svg>'
    )
    return joined(
        *(
            tag("button", swatch, short(label), type="button", data_curve=str(place), aria_pressed="true")
            for place, label in enumerate(labels)
            if label in drawn
        )
    )


def evaluations(groups: Sequence[Group], metric: str) -> Html:
    """The table of evaluations, with a row for each seed: its last value, its greatest, and for returns the spread of
    the last evaluation's episodes.
    """
    rows = [_evaluation(group, member, metric) for group in groups for member in group.members]
    head = [
        "curve",
        "run",
        "environment",
        "steps",
        "last",
        "± episodes",
        "least",
        "most",
        "greatest",
        "at step",
        "time",
    ]
    return joined(
        table(head, rows, numbers=8),
        tag(
            "p",
            f"{_words(metric).capitalize()}. ± episodes: the standard deviation over the episodes of the last "
            "evaluation; least and most: its episodes. Greatest: of all evaluations of that seed, so it flatters.",
            class_="quiet",
        ),
    )


def _evaluation(group: Group, member: Member, metric: str) -> list[object]:
    found = member.series(metric)
    best = _best(found)
    spread = ("std_return", "min_return", "max_return") if metric == "mean_return" else ()
    looked = [number(_last(member, name)) for name in spread] or ["–"] * 3
    return [
        short(group.label),
        short(member.name),
        short(group.environment),
        steps(found.steps[-1]),
        number(found.values[-1]),
        *looked,
        number(found.values[best]),
        steps(found.steps[best]),
        duration(float(np.fmax(_last(member, "time/seconds"), _last(member, "seconds")))),
    ]


def _best(found: Series) -> int:
    """The index of a run's best evaluation: of equals the first, but a later one is preferred to that of step 0."""
    greatest = np.flatnonzero(found.values == found.values.max())
    learned = greatest[found.steps[greatest] > 0]
    return int((learned if len(learned) else greatest)[0])


def _last(member: Member, metric: str) -> float:
    try:
        return float(member.series(metric).values[-1])
    except DuettoError:
        return float("nan")


# ---------------------------------------------------------------------------------------------------- learning
def learning(charts: Sequence[Chart], first: int, legend: Html) -> Html:
    """The charts of the learner's and the training episodes' metrics, each with how it looks in health."""
    if not charts:
        return tag("p", "No numbers of the learning are there: they are in a run's metrics.jsonl.", class_="quiet")
    parts: list[Html] = [tag("div", legend, class_="legend")] if legend else []
    for environment in dict.fromkeys(chart.environment for chart in charts):
        parts.append(tag("h3", short(environment)))
        here = [(first + i, chart) for i, chart in enumerate(charts) if chart.environment == environment]
        parts.append(tag("div", *(_learned(place, chart) for place, chart in here), class_="small"))
    note = "Lines are means over seeds, bands go from the least seed to the greatest."
    return joined(tag("p", note, class_="quiet"), *parts)


def _learned(place: int, chart: Chart) -> Html:
    name = short(chart.metrics[0])
    others = ", ".join(short(metric) for metric in chart.metrics[1:])
    return tag(
        "figure",
        tag("h4", name),
        _plot(place, f"{name} by steps in {short(chart.environment)}"),
        tag("figcaption", f"dotted: {others}") if others else "",
        *_health(chart),
    )


def _health(chart: Chart) -> list[Html]:
    """The written meanings of a chart's number, each once for all algorithms that share it."""
    algorithms = list(dict.fromkeys(run.algorithm for group in chart.groups for run in group.runs[:1]))
    found: dict[meanings.Meaning | None, list[str]] = {}
    for algorithm in algorithms:
        found.setdefault(meanings.meaning(algorithm, chart.metrics[0]), []).append(algorithm)
    return [_meant(row, names if len(found) > 1 else []) for row, names in found.items() if row is not None]


def _meant(row: meanings.Meaning, algorithms: Sequence[str]) -> Html:
    whose = f"{', '.join(algorithms)}: " if algorithms else ""
    pairs = [(tag("dt", "what", class_="what"), tag("dd", whose, with_code(row.what)))]
    for kind, words in (("healthy", row.healthy), ("sick", row.sick)):
        if words:
            pairs.append((tag("dt", kind, class_=kind), tag("dd", with_code(words))))
    return tag("dl", *(part for pair in pairs for part in pair), class_="health")


# ---------------------------------------------------------------------------------------------------- videos
def videos(groups: Sequence[Group]) -> tuple[Html, list[str]]:
    """The newest video of each curve, from its first seed that has one; and sentences on why others are missing."""
    figures: list[Html] = []
    notices: list[str] = []
    left = films.LARGEST_ALL
    runs = [group for group in groups if group.runs]
    for group in runs:
        found = [path for run in group.runs if (path := films.newest(run.folder)) is not None]
        if not found:
            continue
        address, problem = films.read(found[0], left)
        if problem:
            notices.append(problem)
            continue
        left -= len(address) * 3 // 4
        caption = f"{short(group.label)} in {short(group.environment)}: {found[0].parent.parent.name}, {found[0].name}"
        film = tag("video", src=Html(address), controls=True, preload="metadata", playsinline=True)
        figures.append(tag("figure", film, tag("figcaption", caption)))
    if figures:
        return tag("div", *figures, class_="films"), notices
    how = tag("code", "duetto video RUN")
    return tag("p", "No video is here. Record one, and make the report again: ", how), notices


# ---------------------------------------------------------------------------------------------------- making it again
def configuration(groups: Sequence[Group]) -> Html:
    """The options in which the curves differ, and each one's `config.yaml`."""
    runs = [group for group in groups if group.runs]
    if not runs:
        return tag("p", "A table of results has no configuration.", class_="quiet")
    parts = [_differences(runs)] if len(runs) > 1 else []
    for group in runs:
        first = group.runs[0]
        head = tag("summary", f"{short(group.label)} in {short(group.environment)}: config.yaml of {short(first.name)}")
        parts.append(tag("details", head, tag("pre", config_text(first)), open=len(runs) == 1))
    return joined(*parts)


def _differences(groups: Sequence[Group]) -> Html:
    settings = [group.runs[0].settings for group in groups]
    options = dict.fromkeys([*_FIRST, *(option for one in settings for option in one)])
    held = {option: [one[option] for one in settings if option in one] for option in options}
    differing = [option for option, values in held.items() if any(value != values[0] for value in values)]
    rows: list[list[object]] = [
        [tag("code", short(option[1])), *(_value(one, option) for one in settings)]
        for option in differing[:_MOST_DIFFERENCES]
    ]
    more = len(differing) - len(rows)
    head = ["option", *(f"{short(group.label)} in {short(group.environment)}" for group in groups)]
    note = "Options that several curves have, and in which they differ; a dash where a curve has no such option."
    said = tag("p", note + (f" {more} more are not shown." if more > 0 else ""), class_="quiet")
    return joined(said, table(head, rows))


def _value(settings: dict[Any, Any], option: Any) -> str:
    return short(settings[option]) if option in settings else "–"


def config_text(run: Recorded) -> str:
    """The text of the run's `config.yaml`, without the user's signatures."""
    try:
        text = within.read_file(run.folder / "config.yaml", LARGEST).decode()
        return short(re.sub(r"(?m)^ +signature: .*\n", "", text), _LONGEST_CONFIG)
    except (OSError, ValueError) as error:
        raise DuettoError(f"{run.folder / 'config.yaml'} cannot be read: {error}.") from error


def repeating(groups: Sequence[Group]) -> Html:
    """Commands that make the runs again, what else these need, and the commands that made the runs."""
    parts: list[Html] = []
    for group in (group for group in groups if group.runs):
        again = {run.seed: remaking.command(run.config, "config.yaml") for run in group.runs}
        lines = "\n".join(f"{command} --seed {seed}" for seed, command in again.items() if command)
        lacking = dict.fromkeys(
            sentence
            for run in group.runs
            for sentence in (*remaking.needed(run.config), *remaking.of_its_history(run.config))
        )
        recorded = "\n".join(
            short(run.config.get("command") or "(none: it was begun in Python)", 2_000) for run in group.runs
        )
        parts += [
            tag("h3", f"{short(group.label)} in {short(group.environment)}"),
            *([tag("p", "Save its configuration, above, as ", tag("code", "config.yaml"), "; then")] if lines else []),
            *([tag("pre", lines)] if lines else []),
            *(tag("p", short(sentence, 2_000)) for sentence in lacking),
            tag("details", tag("summary", "The commands that its folders say they were made by"), tag("pre", recorded)),
        ]
    tables = sorted(
        {str(member.path) for group in groups for member in group.members if isinstance(member, tidy.Tabled)}
    )
    if tables:
        parts.append(tag("p", f"From tables, which do not say how they were made: {', '.join(map(short, tables))}."))
    note = (
        "On one machine with the same versions, and with all that is said to be needed, the numbers are the same "
        "again. config.yaml has every option; of a run from elsewhere, read it first."
    )
    return joined(tag("p", note, class_="quiet"), *parts)


def versions(groups: Sequence[Group]) -> Html:
    """The table of the versions that the runs were made with: a column for each set of versions."""
    found: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for run in (run for group in groups for run in group.runs):
        said = run.config.get("versions")
        known = said if isinstance(said, dict) else {}
        found.setdefault(yaml.safe_dump(known), (known, []))[1].append(run.name)
    if not found:
        return tag("p", "A table of results has no versions.", class_="quiet")
    names = dict.fromkeys(str(name) for known, _ in found.values() for name in known)
    alone = len(found) == 1
    head: list[object] = ["package", *("version" if alone else short(", ".join(runs)) for _, runs in found.values())]
    rows: list[list[object]] = [
        [short(name), *(short(known.get(name, "–")) for known, _ in found.values())] for name in list(names)[:100]
    ]
    return table(head, rows)


# ---------------------------------------------------------------------------------------------------- small parts
def notices(sentences: Sequence[str]) -> Html:
    """The list of notices on what was found damaged, changed or too large; "" without any."""
    if not sentences:
        return Html("")
    return tag("div", tag("strong", "To be known"), tag("ul", *(tag("li", one) for one in sentences)), class_="notices")


def _plot(place: int, label: str) -> Html:
    return tag("div", class_="plot", data_chart=str(place), role="img", aria_label=label)


def _seeds(drawn: Sequence[Drawn]) -> str:
    """A sentence on what is drawn of each curve of a chart."""
    return "; ".join(f"{short(one.group.label)}: {_drawn(one)}{one.curve.remark}" for one in drawn) + "."


def _drawn(one: Drawn) -> str:
    count = len(one.group.members)
    if count >= BANDED:
        return f"{count} seeds, interquartile mean and 95 % interval"
    return "1 seed" if count == 1 else f"{count} seeds, each of them and their mean"


def _words(metric: str) -> str:
    return short(metric).replace("_", " ")
