"""Read and write the YAML 1.2 files of a run's folder safely.

Large files and aliases are refused: with aliases, a few lines can expand to gigabytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from duetto.errors import DuettoError
from duetto.storage import atomic_io, safe_open

LARGEST = 2**20  # bytes
DEEPEST = 50  # levels of nested lists and mappings
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's loader, if installed, is 3 times as fast
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_TAG = "tag:yaml.org,2002:"
# YAML 1.2's core schema (10.3.2), and << of YAML 1.1. PyYAML follows 1.1, which reads `on` as true, `1_000` as 1000.
_SCHEMA = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "merge": "<<",
}


class _Loader(_SAFE):
    yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - PyYAML's attribute, without YAML 1.1 resolvers

    def flatten_mapping(self, node: Any) -> None:
        """Raise YAMLError if a mapping has a key twice, which YAML forbids; PyYAML uses the last one."""
        if hasattr(node, "is_flat"):  # an alias leads here again
            return
        node.is_flat, keys = True, set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if (key.tag, key.value) in keys:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1} repeats the key {key.value}: remove one")
                keys.add((key.tag, key.value))
        super().flatten_mapping(node)


class _Dumper(_DUMPER):  # quotes each text that YAML 1.1 or 1.2 would read as another type
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _int(loader: Any, node: Any) -> int:
    return int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10)


_Loader.add_constructor(f"{_TAG}int", _int)
for _name, _pattern in _SCHEMA.items():
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), None)


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises YAMLError or ValueError if it is malformed, and the errors of `read_file`."""
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
    """Return the YAML text of values. Raises YAMLError for values that YAML cannot hold."""
    try:
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    except RecursionError as error:
        raise yaml.YAMLError("a value contains itself") from error


def write_yaml(path: Path, text: str) -> None:
    """Write a YAML text completely or not at all. Raises DuettoError if writing fails."""
    try:
        atomic_io.publish_file(path, text.encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Fix that and try again.") from error
