"""Pictures of a study: the scores of its trials, and which options mattered."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from duetto.display.plotting import new_figure, save
from duetto.errors import UsageError
from duetto.extras import install
from duetto.tuning.optuna import Trial

MOST = 15  # bars


def needed() -> None:
    """Raise UsageError if Matplotlib is not installed: before a study, not after it."""
    try:
        new_figure(1.0, 1.0)
    except UsageError as error:
        raise UsageError(f"A study is drawn with Matplotlib. Install: {install('tune')}") from error


def draw(folder: Path, trials: list[Trial], importances: dict[str, float], title: str) -> tuple[Path, ...]:
    """Draw `history.png`, and `importance.png` if importances are known; return those that were drawn.

    Raises:
        UsageError: Matplotlib is not installed.
        DuettoError: A picture cannot be written.
    """
    drawn: list[Path] = []
    if any(trial.value is not None for trial in trials):
        figure = new_figure(width=7.0, height=4.2)
        _history(figure.add_subplot(), trials, title)
        save(figure, folder / "history.png")
        drawn.append(folder / "history.png")
    if importances:
        shown = list(importances.items())[:MOST]
        figure = new_figure(width=7.0, height=1.2 + 0.32 * len(shown))
        _importance(figure.add_subplot(), shown, title)
        save(figure, folder / "importance.png")
        drawn.append(folder / "importance.png")
    return tuple(drawn)


def _history(axes: Any, trials: list[Trial], title: str) -> None:
    """Plot each trial's score, and the best until then; trials without a score are marked at the lower edge."""
    complete = [trial for trial in trials if trial.value is not None]
    numbers, values = [trial.number for trial in complete], [float(trial.value or 0.0) for trial in complete]
    axes.scatter(numbers, values, s=18, color="C0", label="score of a trial", zorder=3)
    axes.step(numbers, list(accumulate(values, max)), where="post", color="C1", linewidth=2, label="best until then")
    for state, colour, mark in (("pruned", "C7", "|"), ("diverged", "C3", "x"), ("failed", "C3", "1")):
        found = [trial.number for trial in trials if trial.state == state]
        if found:
            # At the lower edge whatever the scores are: what such a trial would have come to is not known.
            where = axes.get_xaxis_transform()
            axes.scatter(found, [0.02] * len(found), transform=where, marker=mark, color=colour, label=state, s=36)
    axes.set(title=title, xlabel="trial", ylabel="score (interquartile mean over seeds)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _importance(axes: Any, shown: list[tuple[str, float]], title: str) -> None:
    names, shares = [name for name, _ in shown][::-1], [share for _, share in shown][::-1]
    bars = axes.barh(names, shares, color="C0")
    axes.bar_label(bars, labels=[f"{share:.0%}" for share in shares], padding=3, fontsize=8)
    axes.set(title=title, xlabel="share in what makes a trial good (PED-ANOVA)", xlim=(0.0, max(shares) * 1.12))
    axes.grid(alpha=0.3, axis="x")
