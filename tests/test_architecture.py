"""The structure of the source: layers, no import cycles, sizes, and a list of files in each package.

python tests/test_architecture.py          record the packages' sizes in tokens.txt
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
PACKAGES = [name.removesuffix("/__init__.py") for name in NAMES.values() if name.endswith("/__init__.py")]

# Imports inside a function that select an implementation. The implementation imports its interface.
LAZY_IMPORTS = {
    ("duetto.learners.policy", "duetto.learners"),
    ("duetto.cluster.config", "duetto.cluster.launch"),
    ("duetto.cluster.config", "duetto.cluster.ray"),
}
# Exceptions that are still too large. Add no entries.
LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
LARGE_CLASSES: set[str] = set()


def test_imports_respect_layers_and_frameworks():
    """`pyproject.toml` lists the layers, and the files that may import each framework."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]  # in this process it disables all loggers
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_source_has_no_import_cycles():
    graph = grimp.build_graph("duetto", exclude_type_checking_imports=True, cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    for importer, choice in LAZY_IMPORTS:
        imported[importer] = imported[importer] - {choice}
    assert list(TopologicalSorter(imported).static_order())  # raises CycleError


def test_files_functions_and_classes_are_small():
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


def tokens_per_package() -> Counter[str]:
    """Return the number of tokens in each package, without comments and layout."""
    layout = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENCODING", "ENDMARKER"}
    sizes: Counter[str] = Counter()
    for path, name in NAMES.items():
        found = tokenize.tokenize(BytesIO(path.read_bytes()).readline)
        sizes[name.split("/")[0] if "/" in name else "."] += sum(tokenize.tok_name[t.type] not in layout for t in found)
    return sizes


def test_packages_grow_at_most_three_percent():
    """If a package grew by more than 3 %, explain it in docs/decisions.md and record the sizes again."""
    recorded = {
        package: int(size) for package, size in (line.split() for line in SIZES.read_text("utf-8").splitlines())
    }
    assert {
        package: size for package, size in tokens_per_package().items() if size > 1.03 * recorded.get(package, 0)
    } == {}


def test_public_class_names_are_unique():
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(NAMES[path])
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_package_docstring_lists_its_files(package: str):
    """The docstring of each package names its files and folders; * stands for any text."""
    folder = ROOT / package
    named = set(re.findall(r"[\w*]+", ast.get_docstring(TREES[folder / "__init__.py"]) or ""))
    inside = [path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert [name for name in inside if name != "__init__" and not any(fnmatch(name, one) for one in named)] == []


if __name__ == "__main__":
    SIZES.write_text("".join(f"{package} {size}\n" for package, size in sorted(tokens_per_package().items())), "utf-8")
