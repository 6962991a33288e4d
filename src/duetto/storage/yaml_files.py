"""YAML of a run's folder: small, without aliases (a few lines of them can stand for gigabytes), safe to load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from duetto.storage import within

LARGEST = 2**20  # bytes
DEEPEST = 50  # lists within lists
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, if it is there: 3 times as fast
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MERGE = "tag:yaml.org,2002:merge"


class _Dumper(_DUMPER):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises OSError, YAMLError or ValueError if it holds none; see `within.read_file`."""
    text = within.read_file(path, LARGEST).decode()
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias, *name: write out what it stands for")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return parse(text)


def parse(text: str) -> Any:
    """Parse a text of YAML. Raises YAMLError if it is none, or has a key twice."""
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        _check_keys(node, set())
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


_EXPONENT = re.compile(r"[-+]?\d+\.?\d*[eE][-+]?\d+")


def numbers(value: Any) -> Any:
    """Turn texts such as 1e-3, which YAML does not take for numbers, into floats in what was parsed."""
    if isinstance(value, dict):
        return {name: numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _check_keys(node: Any, seen: set[int]) -> None:
    """Raise YAMLError if a key is given twice, as YAML's rules forbid: loaders silently take the last one."""
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))  # aliases lead there again
    keys: set[tuple[str, str]] = set()
    for part in node.value:
        key, *values = part if isinstance(part, tuple) else (None, part)
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if (key.tag, key.value) in keys:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1} has {key.value} once more: leave one of them")
            keys.add((key.tag, key.value))
        for value in values:
            _check_keys(value, seen)


def to_yaml(values: Any) -> str:
    """The YAML text of values. Raises YAMLError for what it cannot hold."""
    try:
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    except RecursionError as error:
        raise yaml.YAMLError("something in it holds itself") from error
