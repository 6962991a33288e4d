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
    return _LOADER(text).get_single_data()


def to_yaml(values: Any) -> str:
    """Undo `read_yaml`. Raises YAMLError for what it cannot hold."""
    try:
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    except RecursionError as error:
        raise yaml.YAMLError("something in it holds itself") from error
