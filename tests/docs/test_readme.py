"""The README: its code is the source's and runs, its numbers are those of committed results, its links lead on."""

from __future__ import annotations

import inspect
import re
from csv import DictReader
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import fast
import learned
import overview
import pytest

import duetto
from duetto.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ROWS = {
    cells[0]: cells[1:] for cells in (line.strip("| ").split(" | ") for line in TEXT.splitlines()) if len(cells) > 7
}


def numbers(cell: str) -> list[float]:
    """What stands in a cell, without its thousands' commas."""
    return [float(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*", cell)]


def test_td3s_loss_is_the_sources():
    assert "class TD3(DDPG):\n" + inspect.getsource(duetto.TD3.critic_loss) in BLOCKS


def test_the_lines_of_python_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As written, in a smaller environment and with a shorter training."""
    monkeypatch.chdir(tmp_path)
    small = partial(
        duetto.train, steps=60, hidden=(8,), random_steps=20, learning_starts=20, batch_size=8, evaluate_every=0
    )
    monkeypatch.setattr(duetto, "train", partial(small, backend="torch"))
    [block] = [block for block in BLOCKS if "duetto.train(" in block]
    names: dict[str, Any] = {"observation": [1.0, 0.0, 0.0]}
    exec(block.replace("HalfCheetah-v5", "Pendulum-v1").replace("episodes=10", "episodes=1"), names)
    assert names["action"].shape == (1,)


def test_the_speeds_are_those_of_the_committed_tables():
    header, rows = fast.beside()
    lines = TEXT.partition("<!-- speed -->")[2].partition("<!-- end speed -->")[0].strip().splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])] == [header, *rows]


def test_what_the_page_says_of_speed():
    """On JAX ahead of SBX or level, but for CrossQ once; on PyTorch of SB3, but for SAC, and DDPG on the slow Intel.

    With AMX PyTorch is a tenth ahead, in SAC, too, and in bfloat16 the ratios are those that the page names.
    """
    slow, amx = "Intel Xeon @ 2.50GHz (AVX-512)", "Intel Xeon (AMX)"
    assert sum(machine == slow for _, machine in fast.rates()) == 10
    for (task, machine), measured in fast.rates().items():
        ours = measured.get("duetto-jax", measured.get("duetto-torch", 0))
        assert (ours < measured.get("sbx", 0)) == ((task, machine) == ("crossq", "Intel Xeon")), (task, machine)
        if "duetto-torch" in measured:
            ratio = measured["duetto-torch"] / measured.get("sb3", 1)
            if machine == amx and task in ("td3", "ddpg", "sac"):
                assert 1.05 < ratio < 1.2, task
            else:
                assert (ratio > 1.1) != (task == "sac" or (machine == slow and task == "ddpg")), (task, machine)
        if machine == slow and task in ("td3", "ddpg"):
            assert ours / measured["sbx"] > 1.15, task
    said = " ".join(TEXT.partition("All in float32.")[2].partition("\n\n")[0].split())
    tasks = "td3", "ddpg", "sac", "crossq"
    jax = [fast.rates("bf16")[task, amx]["duetto-jax"] for task in tasks]
    times = [rate / fast.rates()[task, amx]["sbx"] for rate, task in zip(jax, tasks, strict=True)]
    breakout, sb3 = fast.rates("bf16")["ppo-breakout", amx]["duetto-torch"], fast.rates()["ppo-breakout", amx]["sb3"]
    assert "TD3 {:.0f}, DDPG {:.0f}, SAC {:.0f} and CrossQ {:.0f} on JAX".format(*jax) in said
    assert "{:.2f}, {:.2f}, {:.2f} and {:.2f} times SBX".format(*times) in said
    assert f"Breakout {breakout:.0f} on PyTorch, {breakout / sb3:.2f} times" in said
    ratios = [behind(task, name) for name in ("duetto-jax-behind", "duetto-jax") for task in ("td3", "ddpg")]
    wanted = "TD3 and DDPG are {:.2f} and {:.2f} times as fast as SBX ({:.2f} and {:.2f} without, in the same hour)"
    assert wanted.format(*ratios) in said


def behind(task: str, contender: str) -> float:
    """Times SBX, the median over the rounds, in the table of acting one step behind."""
    with (ROOT / "benchmarks" / "results" / "behind-amx.csv").open(encoding="utf-8", newline="") as file:
        rows = list(DictReader(file))
    found = {(row["task"], row["contender"], row["round"]): float(row["steps_per_second"]) for row in rows}
    rounds = {number for _, _, number in found}
    return median(found[task, contender, number] / found[task, "sbx", number] for number in rounds)


def test_the_number_of_algorithms():
    assert numbers(ROWS["algorithms"][0]) == [len(ALGORITHMS)]
    named = TEXT.split("[Which algorithm?]")[1].lower().replace("discrete sac", "discretesac")
    assert all(re.search(rf"\b{name}\b", named) for name in ALGORITHMS)


def test_the_picture_of_results_is_made_again():
    assert (ROOT / "docs" / "_static" / "results.svg").read_text("utf-8") == overview.alone(overview.overview())


def test_the_returns_of_the_cheetahs():
    """Those of the run that was filmed, before its first step and after its last."""
    curve = learned.evaluations("crossq-halfcheetah-100k-s0")
    first, last = (f"{curve[i][1]:,.0f}".replace("-", "−") for i in (0, -1))
    assert f"with returns of {first} and {last}" in " ".join(TEXT.split())
    assert curve[-1][0] == 100_000


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
