"""Presets in a file of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetto.errors import UsageError
from duetto.presets import choose

ONE = "quick: {about: Mine., run: {steps: 500}, algorithm: {tau: 0.01}}\n"
TWO = ONE + "Pendulum-v1: {algorithm: {tau: 0.02}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def test_the_only_one_in_a_file(file: Path):
    file.write_text(ONE)
    name, preset = choose("td3", "Pendulum-v1", str(file))
    assert (name, preset.algorithm, preset.run) == (str(file), {"tau": 0.01}, {"steps": 500})


def test_of_several_the_environments_or_the_one_that_is_named(file: Path):
    file.write_text(TWO)
    assert choose("td3", "Pendulum-v1", str(file))[1].algorithm == {"tau": 0.02}
    assert choose("td3", "Pendulum-v1", f"{file}:quick")[1].algorithm == {"tau": 0.01}
    with pytest.raises(UsageError, match=r"mine\.yaml has the presets quick, Pendulum-v1\. Name one of them"):
        choose("td3", "CartPole-v1", str(file))
    with pytest.raises(UsageError, match="Name one of them"):
        choose("td3", "Pendulum-v1", f"{file}:slow")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("quick: {run: {step: 500}}", r"a run has no option 'step'\. Did you mean 'steps'"),
        ("quick: {options: {steps: 500}}", "cannot be read"),
        ("- 1", "cannot be read"),
        ("quick: {algorithm: {tau: 0.1}}\nquick: {}", r"cannot be read \(line 2 has quick once more"),
        ("{", "cannot be read"),
        ("", r"has the presets \(none\)"),
    ],
)
def test_what_is_no_preset_gets_a_sentence(file: Path, text: str, sentence: str):
    file.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        choose("td3", "Pendulum-v1", str(file))


def test_a_file_that_is_not_there_gets_a_sentence(file: Path):
    with pytest.raises(UsageError, match="cannot be read"):
        choose("td3", "Pendulum-v1", str(file))
