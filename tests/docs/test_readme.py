"""The README: its code is the source's and runs, its numbers are those of committed results, its links lead on."""

from __future__ import annotations

import csv
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
    """The cells of the table between the comments `mark` and `end mark`, without the line below the header."""
    lines = TEXT.partition(f"<!-- {mark} -->")[2].partition(f"<!-- end {mark} -->")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_td3s_loss_is_the_sources():
    first = next(line for line in inspect.getsource(duetto.TD3).splitlines(True) if line.startswith("class "))
    assert first + inspect.getsource(duetto.TD3.critic_loss) in BLOCKS


def test_the_lines_of_python_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As written, in a smaller environment and with a shorter training."""
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


def test_the_committed_table_of_speed_has_the_medians_of_its_rows():
    header, rows = fast.summary()
    text = (ROOT / "benchmarks" / "results" / "speed.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]
    assert cells == [header, *rows]


def test_a_ratio_is_the_median_over_rounds_in_which_both_took_turns():
    """DDPG on Zen 4, of both series: 1.06, 1.17, 1.17, 0.95 and 1.07 times SBX's of the same round."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    with (ROOT / "benchmarks" / "results" / "speed.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["task"], row["machine"]) == ("ddpg", "AMD EPYC, Zen 4") and (
                row["threads"],
                row["precision"],
            ) == ("2", "float32"):
                turn = row["series"], row["round"]
                found.setdefault(turn, {})[row["contender"]] = float(row["steps_per_second"])
    ratios = sorted(one["duetto-jax"] / one["sbx"] for one in found.values() if {"duetto-jax", "sbx"} <= one.keys())
    header, rows = fast.ratios()
    cell = next(row for row in rows if row[0] == "DDPG")[header.index("AMD EPYC, Zen 4")]
    assert cell.startswith(f"{ratios[len(ratios) // 2]:.2f} ")


def test_what_the_page_says_of_speed():
    """The fastest of the others is SBX, on Breakout Stable-Baselines3; what is bold is a tenth ahead or more."""
    shown = {task for task, _, _ in fast.ROWS.values()}
    for task, machine in fast.rates():
        if task in shown:
            peer = fast.fastest((task, machine), ours=False)
            assert peer == ("sb3" if task == "ppo-breakout" else "sbx"), (task, machine)
    cells = [cell for row in fast.ratios()[1] for cell in row[1:] if cell != "–"]
    assert len(cells) > 35
    for cell in cells:
        ratio, ours, theirs, *_ = (float(number.replace(",", "")) for number in re.findall(r"\d[\d.,]*", cell))
        assert ratio == pytest.approx(ours / theirs, rel=0.15), cell  # one is a median of ratios, both others medians
        assert ("**" in cell) == (ratio >= 1.1), cell
    assert {machine for _, machine in fast.rates()} == set(fast.MACHINES)


def test_the_table_of_algorithms_is_made_of_their_classes():
    """After a new algorithm: `python docs/build_pages.py`."""
    assert build_pages.refreshed(ROOT / "README.md") == (TEXT, {})
    assert all(f"[{kind.__name__}](docs/algorithms/{name}.md)" in TEXT for name, kind in ALGORITHMS.items())


@pytest.mark.parametrize(
    ("row", "job", "others"),
    [
        ("TD3, Ant-v5", "td3-ant-bf16", "TD3's authors, 10 seeds, v1"),
        ("TD3, HalfCheetah-v5", "td3-halfcheetah", "TD3's authors, 10 seeds, v1"),
        ("CrossQ, HalfCheetah-v5", "crossq-halfcheetah-100k", "CrossQ's authors, 10 seeds, v4"),
        ("PPO, Pong", "ppo-pong", "CleanRL at 10 million steps, 3 seeds"),
    ],
)
def test_a_result_is_that_of_committed_evaluations(row: str, job: str, others: str):
    cells = {name: cells for name, *cells in table("results")}[row]
    curves = learned.of_seeds(job)
    mean = fmean(curve[-1][1] for curve in curves)
    assert cells[1] == str(len(curves))
    assert cells[0] == f"{round(curves[0][-1][0], -2):,.0f}"
    assert cells[2] == (f"{mean:,.0f}" if mean > 100 else f"{mean:.1f}")
    published = learned.published(job, others)
    last = published[-1][1] if isinstance(published, list) else published
    assert cells[3].split(" ")[0] == (f"{last:,}")


def test_the_picture_of_results_is_made_again():
    assert (ROOT / "docs" / "_static" / "results.svg").read_text("utf-8") == alone(overview.overview())


def test_the_moving_picture_moves_and_is_small():
    from PIL import Image

    path = ROOT / "docs" / "_static" / "clips" / "cheetah.webp"
    assert path.stat().st_size < 1e6
    with Image.open(path) as picture:
        assert getattr(picture, "n_frames", 1) > 20


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)\s]+)\)", TEXT))))
def test_a_link_leads_somewhere(link: str):
    """To a file of the repository, and a heading there; the README has no other links."""
    path, _, anchor = link.partition("#")
    target = ROOT / path
    assert target.is_file(), link
    headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE) if anchor else []
    assert not anchor or anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_the_blocks_that_ci_runs_are_there():
    for mark, words in (("ci: install", "duetto train"), ("ci: test", "pytest")):
        found = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)```", TEXT, re.DOTALL)
        assert found, mark
        assert words in found[1]
