"""YAML of a run's folder: small, without aliases (a few lines of them can stand for gigabytes), safe to load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from duetto.storage import within

LARGEST = 2**20  # bytes


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias, *name: write out what it stands for")
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def read_yaml(path: Path) -> Any:
    """What a file holds. Raises OSError, YAMLError or ValueError where it holds no YAML; see `within.read_file`."""
    try:
        return _Loader(within.read_file(path, LARGEST).decode()).get_single_data()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def to_yaml(values: Any) -> str:
    """Undo `read_yaml`. Raises YAMLError for what it cannot hold."""
    try:
        return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    except RecursionError as error:
        raise yaml.YAMLError("something in it holds itself") from error
