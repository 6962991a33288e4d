"""YAML 1.2 of a run's folder: small, without aliases (a few lines can expand to gigabytes), safe to load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from duetto.errors import DuettoError
from duetto.storage import atomic_io, safe_open

LARGEST = 2**20  # bytes
DEEPEST = 50  # lists within lists
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, if it is there: 3 times as fast
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TAG = "tag:yaml.org,2002:"
# YAML 1.2's core schema (10.3.2), and 1.1's <<. PyYAML reads 1.1, which takes on for true and 1_000 for 1000.
_SCHEMA = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": "<<",
}


class _Loader(_SAFE):
    yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - PyYAML's own attribute, without those of 1.1

    def flatten_mapping(self, node: Any) -> None:
        """Raise YAMLError if a mapping has a key twice, which YAML forbids; PyYAML takes the last one."""
        if hasattr(node, "is_flat"):  # an alias leads here again
            return
        node.is_flat, keys = True, set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if (key.tag, key.value) in keys:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1} has {key.value} once more: leave one of them")
                keys.add((key.tag, key.value))
        super().flatten_mapping(node)


class _Dumper(_DUMPER):  # has the resolvers of 1.1 as well: a text that either takes for something else is quoted
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _int(loader: Any, node: Any) -> int:
    return int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10)


_Loader.add_constructor(f"{_TAG}int", _int)
for _name, _pattern in _SCHEMA.items():
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), None)


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises OSError, YAMLError or ValueError if it is malformed; DuettoError as `read_file`."""
    text = safe_open.read_file(path, LARGEST).decode()
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias, *name: write its value instead")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return parse(text)


def parse(text: str) -> Any:
    """Parse a YAML text. Raises YAMLError if it is malformed or has a key twice."""
    return yaml.load(text, Loader=_Loader)


def to_yaml(values: Any) -> str:
    """Return the YAML text of values. Raises YAMLError for values that it cannot hold."""
    try:
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    except RecursionError as error:
        raise yaml.YAMLError("a value contains itself") from error


def write_yaml(path: Path, text: str) -> None:
    """Write a YAML text, whole or not at all. Raises DuettoError if the disk refuses."""
    try:
        atomic_io.publish_file(path, text.encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Fix that and try again.") from error
