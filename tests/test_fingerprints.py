"""What makes environments has the fingerprint of what it computes, in whatever process."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from duetto.fingerprints import fingerprint

DEFINITIONS = """
import gymnasium
import numpy as np
from functools import cache, cached_property, partial

SCALE = 2.0

class Base(gymnasium.Env):
    bonus = 1
    names = {"a", "b", "c", "d"}
    def __init__(self, n=1): self.n = n
    def step(self, action): return sum(i * self.bonus for i in (1, 2)), {"x", "y", "z"}
    @property
    def width(self): return self.n
    @width.setter
    def width(self, n): self.n = n + 0
    @staticmethod
    def far(): return 3
    @cached_property
    def near(self): return 6
    @staticmethod
    @cache
    def kept(): return 7

class Mine(Base):
    def reset(self, seed=None): return help_it(seed) * SCALE

def help_it(seed): return 1 if seed is None else seed
def made(n=5, table=np.arange(4)): return Mine(n)
def around(n): return lambda: Mine(n)
"""
MAKERS = ["Mine", "made", "around(3)", "partial(made, n=4)", "(lambda: Mine())", "(lambda: Base(np.ones(2).size))"]
CHANGES = [
    ("SCALE = 2.0", "SCALE = 2.5", {0, 1, 2, 3, 4}),  # what a method of a class refers to
    ("bonus = 1", "bonus = 2", {0, 1, 2, 3, 4, 5}),  # of a base class
    ("(1, 2)", "(1, 3)", {0, 1, 2, 3, 4, 5}),  # within an expression
    ("return self.n", "return -self.n", {0, 1, 2, 3, 4, 5}),
    ("n + 0", "n + 1", {0, 1, 2, 3, 4, 5}),  # of a property's other side
    ("return 6", "return 8", {0, 1, 2, 3, 4, 5}),
    ("return 7", "return 8", {0, 1, 2, 3, 4, 5}),
    ("return 3", "return 4", {0, 1, 2, 3, 4, 5}),
    ("return 1 if", "return 2 if", {0, 1, 2, 3, 4}),
    ("n=5", "n=6", {1, 3}),  # a default
    ("arange(4)", "arange(4) + 1", {1, 3}),  # the contents of an array
    ("lambda: Mine(n)", "lambda: Mine(n + 1)", {2}),
    ("def made", "\n\n# a comment\ndef made", set()),
]


def of(definitions: str, *, name: str | None = "__main__") -> list[str]:
    """As a script or a notebook defines them; with None, as `exec` does in a namespace that has no name."""
    namespace: dict[str, Any] = {} if name is None else {"__name__": name}
    exec(f"{definitions}\nmakers = [{', '.join(MAKERS)}]", namespace)
    return [fingerprint(maker) for maker in namespace["makers"]]


def test_the_same_code_has_the_same_one_and_no_two_makers_do():
    first = of(DEFINITIONS)
    assert first == of(DEFINITIONS)
    assert len(set(first)) == len(MAKERS)
    assert all(len(one) == 64 for one in first)


@pytest.mark.parametrize(("old", "new", "others"), CHANGES)
def test_what_it_computes_otherwise_shows_in_those_that_use_it(old: str, new: str, others: set[int]):
    assert old in DEFINITIONS
    for name in ("__main__", None):
        pairs = zip(of(DEFINITIONS, name=name), of(DEFINITIONS.replace(old, new), name=name), strict=True)
        assert {number for number, (before, after) in enumerate(pairs) if before != after} == others


def test_what_a_closure_holds_counts():
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(DEFINITIONS, namespace)
    around = namespace["around"]
    assert fingerprint(around(3)) == fingerprint(around(3)) != fingerprint(around(4))
    assert fingerprint(partial(around(3), 1)) != fingerprint(partial(around(3), 2))
    assert fingerprint(around(np.zeros(3))) != fingerprint(around(np.ones(3)))


def test_what_it_counts_itself_and_what_lies_too_deep_is_no_difference():
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(f"{DEFINITIONS}\nCOUNT = 0\ndef counts():\n    global COUNT\n    COUNT += 1\n    return Mine()", namespace)
    counts = namespace["counts"]
    before = fingerprint(counts)
    counts()
    assert namespace["COUNT"] == 1
    assert fingerprint(counts) == before
    deep: Any = ()
    for _ in range(10_000):
        deep = (deep,)
    assert fingerprint(partial(counts, deep)) == fingerprint(partial(counts, deep)) != before


def test_it_is_the_same_in_another_process(tmp_path: Path):
    """Whose hashes of text are others, and with them the order of sets."""
    (tmp_path / "script.py").write_text(
        f"from duetto.fingerprints import fingerprint\n{DEFINITIONS}\n"
        f"makers = [{', '.join(MAKERS)}]\nprint(*map(fingerprint, makers))",
        "utf-8",
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py"],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == of(DEFINITIONS)


def test_of_an_imported_module_the_whole_file_counts_and_of_installed_packages_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "mine_for_fingerprints.py"
    file.write_text(DEFINITIONS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import mine_for_fingerprints as mine

    before = fingerprint(mine.Mine)
    file.write_text(DEFINITIONS + "\n# edited\n", "utf-8")
    assert fingerprint(mine.Mine) != before
    assert fingerprint(gymnasium.wrappers.TimeLimit) == fingerprint(gymnasium.wrappers.TimeLimit)
    del sys.modules["mine_for_fingerprints"]
