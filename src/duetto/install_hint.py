"""The command that installs the packages of an extra.

The command names each package instead of `duetto[...]`, because the package duetto on PyPI is another project.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution


def install(*extras: str) -> str:
    """Return the shell command that installs the packages of `extras`."""
    installer = (distribution("duetto").read_text("INSTALLER") or "").strip()
    pip = "uv pip install" if installer == "uv" else "pip install"
    return " ".join([pip, *(f'"{package}"' for package in packages(*extras))])


def packages(*extras: str) -> list[str]:
    """Return the pip requirements that `extras` add. If an extra names other extras of Duetto, expand these."""
    expanded: list[str] = []
    for requirement in _added("duetto", extras):
        inner = re.fullmatch(r"duetto\[(.+)\]", requirement)
        expanded += packages(*inner[1].split(",")) if inner else [requirement]
    return list(dict.fromkeys(expanded))


def names() -> list[str]:
    """Return the names of all extras."""
    return distribution("duetto").metadata.get_all("Provides-Extra") or []


def is_installed(extra: str) -> bool:
    """Return whether every package of an extra is installed, in any version, without importing it."""
    return all(map(_is_installed, packages(extra)))


def _is_installed(requirement: str) -> bool:
    match = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
    assert match is not None
    try:
        return all(map(_is_installed, _added(match[1], (match[2] or "").split(","))))
    except PackageNotFoundError:
        return False


def _added(package: str, extras: Sequence[str]) -> list[str]:
    """Return the requirements that extras of an installed package add."""
    lines = [line.partition(";") for line in distribution(package).requires or []]
    names = "|".join(map(re.escape, extras))
    return [
        requirement.strip()
        for requirement, _, marker in lines
        if re.fullmatch(rf"\s*extra\s*==\s*['\"]({names})['\"]\s*", marker)
    ]
