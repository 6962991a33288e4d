"""The README: its code runs, its numbers equal committed results, its links work."""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import build_pages
import fast
import learned
import overview
import pytest
from drawing import alone

import duetto
from duetto.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def table(mark: str) -> list[list[str]]:
    """Return the cells of the table between the comments `mark` and `end mark`, without the separator row."""
    lines = TEXT.partition(f"<!-- {mark} -->")[2].partition(f"<!-- end {mark} -->")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_td3_loss_equals_the_source():
    first = next(line for line in inspect.getsource(duetto.TD3).splitlines(True) if line.startswith("class "))
    assert first + inspect.getsource(duetto.TD3.critic_loss) in BLOCKS


def test_python_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The example runs with a smaller environment and fewer steps."""
    monkeypatch.chdir(tmp_path)
    small = partial(
        duetto.train, steps=60, hidden=(8,), random_steps=20, learning_starts=20, batch_size=8, evaluate_every=0
    )
    monkeypatch.setattr(duetto, "train", partial(small, backend="torch"))
    [block] = [block for block in BLOCKS if "duetto.train(" in block]
    for word, shorter in (
        ("HalfCheetah-v5", "Pendulum-v1"),
        ("100_000", "60"),
        ("episodes=10", "episodes=1"),
        ("17", "3"),
    ):
        assert word in block
        block = block.replace(word, shorter)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["action"].shape == (1,)


def test_speed_table_has_the_medians_of_its_rows():
    header, rows = fast.summary()
    text = (ROOT / "benchmarks" / "results" / "speed.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]
    assert cells == [header, *rows]


def test_algorithm_table_is_up_to_date():
    """If it fails after a new algorithm, run `python docs/build_pages.py`."""
    assert build_pages.refreshed(ROOT / "README.md") == (TEXT, {})
    assert all(f"[{kind.__name__}](docs/algorithms/{name}.md)" in TEXT for name, kind in ALGORITHMS.items())


@pytest.mark.parametrize(
    ("row", "job", "others"),
    [
        ("TD3, Ant-v5", "td3-ant-bf16", "TD3's authors, 10 seeds, v1"),
        ("TD3, HalfCheetah-v5", "td3-halfcheetah", "TD3's authors, 10 seeds, v1"),
        ("FlashSAC, HalfCheetah-v5", "flashsac-halfcheetah-100k", "FlashSAC's authors, 5 seeds, v4"),
        ("PPO, Pong", "ppo-pong", "CleanRL at 10 million steps, 3 seeds"),
    ],
)
def test_results_equal_the_committed_evaluations(row: str, job: str, others: str):
    cells = {name: cells for name, *cells in table("results")}[row]
    curves = learned.of_seeds(job)
    mean = fmean(curve[-1][1] for curve in curves)
    assert cells[1] == str(len(curves))
    assert cells[0] == f"{round(curves[0][-1][0], -2):,.0f}"
    assert cells[2] == (f"{mean:,.0f}" if mean > 100 else f"{mean:.1f}")
    published = learned.published(job, others)
    last = published[-1][1] if isinstance(published, list) else published
    assert cells[3].split(" ")[0] == (f"{last:,}")


def test_results_figure_is_up_to_date():
    assert (ROOT / "docs" / "_static" / "results.svg").read_text("utf-8") == alone(overview.overview())


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)\s]+)\)", TEXT))))
def test_link_target_exists(link: str):
    """All links of the README lead to files of the repository, some to a heading."""
    path, _, anchor = link.partition("#")
    target = ROOT / path
    assert target.is_file(), link
    headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE) if anchor else []
    assert not anchor or anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
