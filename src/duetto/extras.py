"""The command that installs an extra, for how this Duetto was installed.

In a registry the name is not ours, so `pip install "duetto[...]"` is never what a user is told.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def install(*extras: str) -> str:
    """The shell command that installs `extras` from the same checkout, wheel or repository that Duetto came from.

    A checkout's `constraints.txt` goes with it. Where that origin is not recorded, or is gone, the command names the
    packages that the extras are made of.
    """
    source, wanted = json.loads(_metadata("direct_url.json") or "{}"), ",".join(extras)  # PEP 610; none of a registry
    pip = "uv pip install" if _metadata("INSTALLER").strip() == "uv" else "pip install"
    url = source.get("url", "")
    path = Path(url2pathname(urlsplit(url).path)) if url.startswith("file:") else None
    if commit := source.get("vcs_info", {}).get("commit_id"):
        return f'{pip} "duetto[{wanted}] @ git+{url}@{commit}"'
    if path and path.is_file():
        return f'{pip} "duetto[{wanted}] @ {url}"'
    if path and (path / "pyproject.toml").is_file():
        return f"{pip} {_of_checkout(path, wanted, source.get('dir_info', {}).get('editable', False))}"
    return " ".join([pip, *map(_quoted, packages(*extras))])


def _of_checkout(path: Path, wanted: str, editable: bool) -> str:
    here = path == Path.cwd()
    constraints = path / "constraints.txt"
    constrained = f"-c {constraints.name if here else _quoted(constraints)} " if constraints.is_file() else ""
    return f"{constrained}{'-e ' if editable else ''}{_quoted(f'.[{wanted}]' if here else f'{path}[{wanted}]')}"


def _quoted(text: object) -> str:
    return f'"{text}"'


def packages(*extras: str) -> list[str]:
    """The requirements that `extras` add, as pip takes them; an extra that is made of others is expanded."""
    try:
        required = distribution("duetto").requires or []
    except PackageNotFoundError:
        return [f"duetto[{extra}]" for extra in extras]
    found: list[str] = []
    for line in required:
        requirement, _, marker = line.partition(";")
        if any(f"extra == {quote}{extra}{quote}" in marker for extra in extras for quote in "'\""):
            inner = requirement.strip().removeprefix("duetto[")
            found += packages(*inner.rstrip("]").split(",")) if inner != requirement.strip() else [inner]
    return list(dict.fromkeys(found))


def names() -> list[str]:
    """Names of all extras; empty where Duetto runs without being installed."""
    try:
        return distribution("duetto").metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return []


def is_there(extra: str) -> bool:
    """Whether every package that an extra adds is installed, in whatever version; nothing is imported for it."""
    return all(map(_is_installed, packages(extra)))


def _is_installed(requirement: str) -> bool:
    """Whether a package is installed, with all that its own extras in brackets add."""
    found = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
    assert found is not None
    try:
        required = distribution(found[1]).requires or []
    except PackageNotFoundError:
        return False
    own = [line.partition(";") for line in required]
    inner = found[2].split(",") if found[2] else []
    return all(
        _is_installed(needed.strip())
        for needed, _, marker in own
        if any(re.fullmatch(rf"\s*extra\s*==\s*['\"]{extra}['\"]\s*", marker) for extra in inner)
    )


def _metadata(name: str) -> str:
    try:
        return distribution("duetto").read_text(name) or ""
    except PackageNotFoundError:
        return ""
