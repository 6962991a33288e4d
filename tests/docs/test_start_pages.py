"""Numbers and lists on the pages for beginners: five minutes, choosing, installing, one machine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import first
import pytest
import rooms

DOCS = Path(__file__).parents[2] / "docs"


def test_five_minutes_page_shows_the_plotted_evaluations():
    text = (DOCS / "start" / "five-minutes.md").read_text("utf-8")
    lines = re.findall(r"^step +([\d,]+)  evaluation ([\d.]+) ±", text, re.MULTILINE)
    assert [(float(step.replace(",", "")), float(mean)) for step, mean in lines] == [
        (step, pytest.approx(mean, abs=0.05)) for step, mean in first.evaluations()
    ]


def test_which_page_links_every_algorithm():
    from duetto.algorithms import ALGORITHMS

    chosen = {name for names in first.CHOICES.values() for name in names}
    assert chosen <= set(ALGORITHMS)
    text = (DOCS / "which.md").read_text("utf-8")
    assert all(f"(algorithms/{name}.md)" in text for name in ALGORITHMS)


def test_install_table_lists_every_extra():
    """Except `all`, and the extras for developers."""
    _, rows = first.extras()
    known = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    elsewhere = {"docs", "all", "dev"}
    assert {row[0].strip("`") for row in rows} == set(known) - elsewhere


def test_machine_page_shows_measured_speeds():
    measured = rooms.speeds("AMD EPYC, Zen 5")
    found = [round(measured[f"ppo-halfcheetah-{n}", "duetto-jax", 1]) for n in (1, 8)]
    assert found == [8622, 17986]
    text = (DOCS / "scale" / "machine.md").read_text("utf-8")
    assert all(f"{one:,}" in text for one in found)
