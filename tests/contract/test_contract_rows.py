"""`contract.md` has a row for every name in the code, and a reason for every removed name."""

from __future__ import annotations

import re

import generate
import pytest
from contract_cases import Runs

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def rows(trained: Runs) -> generate.Rows:
    return generate.rows(trained)


def test_every_name_in_the_code_has_a_row(rows: generate.Rows):
    text = generate.FILE.read_text("utf-8")
    assert text == generate.render(rows, generate.read(text)), "run python tests/contract/generate.py"


def test_kept_rows_exist_and_removed_rows_have_reasons(rows: generate.Rows):
    for key, (_, state) in generate.read(generate.FILE.read_text("utf-8")).items():
        if key in rows:
            assert state == "keep", f"{key} is there, and its state is {state!r}"
        else:
            assert re.fullmatch(r"renamed to .+|goes because .+", state), f"{key} is gone, and its state is {state!r}"
            new = state.removeprefix("renamed to ").strip("`")
            assert state.startswith("goes") or (key[0], new) in rows, f"{key} is now {new!r}, which has no row"
