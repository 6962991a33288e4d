"""The shape of the source: layers, no cycles, sizes, and a map in each room.

python tests/test_architecture.py          record the rooms' sizes in tokens.txt
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from io import BytesIO
from pathlib import Path

import grimp
import pytest

import duetto

ROOT = Path(duetto.__file__).parent
SIZES = Path(__file__).with_name("tokens.txt")
FILES = sorted(ROOT.rglob("*.py"))
NAMES = {path: path.relative_to(ROOT).as_posix() for path in FILES}
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
ROOMS = [name.removesuffix("/__init__.py") for name in NAMES.values() if name.endswith("/__init__.py")]

# Imports within a function that choose an implementation, which imports its interface.
CHOICES = {
    ("duetto.learners.policy", "duetto.learners"),
    ("duetto.cluster.config", "duetto.cluster.launch"),
    ("duetto.cluster.config", "duetto.cluster.ray"),
}
# Still too large. Remove an entry with its cause; add none.
LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
LARGE_CLASSES: set[str] = set()


def test_layers_and_frameworks():
    """`pyproject.toml` lists the layers, and the files that may import each framework."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]  # in this process it disables all loggers
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_no_module_imports_itself_through_others():
    graph = grimp.build_graph("duetto", exclude_type_checking_imports=True, cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    for importer, choice in CHOICES:
        imported[importer] = imported[importer] - {choice}
    assert list(TopologicalSorter(imported).static_order())  # raises CycleError


def test_sizes():
    """At most 500 lines in a file, 60 in a function, and 25 public methods in a class."""
    files = {NAMES[path] for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 500}
    functions, classes = set(), set()
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 60:
                functions.add(f"{NAMES[path]}:{node.name}")
            if isinstance(node, ast.ClassDef):
                methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
                classes |= {node.name} if sum(not name.startswith("_") for name in methods) > 25 else set()
    assert (files, functions, classes) == (LONG_FILES, LONG_FUNCTIONS, LARGE_CLASSES)


def tokens_of_rooms() -> Counter[str]:
    """Return the tokens of each room, which long lines and comments do not change."""
    layout = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}
    sizes: Counter[str] = Counter()
    for path, name in NAMES.items():
        found = tokenize.tokenize(BytesIO(path.read_bytes()).readline)
        sizes[name.split("/")[0] if "/" in name else "."] += sum(tokenize.tok_name[t.type] not in layout for t in found)
    return sizes


def test_rooms_do_not_grow_unnoticed():
    """A room that grew by more than 3 %: say why in docs/decisions.md, and record the sizes anew."""
    recorded = {room: int(size) for room, size in (line.split() for line in SIZES.read_text("utf-8").splitlines())}
    assert {room: size for room, size in tokens_of_rooms().items() if size > 1.03 * recorded.get(room, 0)} == {}


def test_a_public_class_name_has_one_meaning():
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(NAMES[path])
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_maps_its_files(room: str):
    """The docstring of each package names its files and folders; * stands for any text."""
    folder = ROOT / room
    named = set(re.findall(r"[\w*]+", ast.get_docstring(TREES[folder / "__init__.py"]) or ""))
    inside = [path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert [name for name in inside if name != "__init__" and not any(fnmatch(name, one) for one in named)] == []


if __name__ == "__main__":
    SIZES.write_text("".join(f"{room} {size}\n" for room, size in sorted(tokens_of_rooms().items())), "utf-8")
