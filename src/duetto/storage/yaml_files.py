"""YAML of a run's folder: small, without aliases (a few lines of them can stand for gigabytes), safe to load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from duetto.storage import within

LARGEST = 2**20  # bytes
DEEPEST = 50  # lists within lists
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, if it is there: 3 times as fast
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Loader(_LOADER):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """YAML's own rule: a key stands once. Loaders take the last one instead, without a word."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1} has {key.value} once more: leave one of them")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Dumper(_DUMPER):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def read_yaml(path: Path) -> Any:
    """What a file holds. Raises OSError, YAMLError or ValueError where it holds no YAML; see `within.read_file`."""
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
    """What a text of YAML says. Raises YAMLError where it is none, or has a key twice."""
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def to_yaml(values: Any) -> str:
    """Undo `read_yaml`. Raises YAMLError for what it cannot hold."""
    try:
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    except RecursionError as error:
        raise yaml.YAMLError("something in it holds itself") from error
