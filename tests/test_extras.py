"""The command that a user without an extra is told: one that works for how Duetto was installed."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from duetto import extras

SOURCE = Path(extras.__file__).parent


class Distribution:
    """What pip leaves behind of an installation."""

    requires = (
        "numpy>=2.0",
        "torch>=2.6; extra == 'torch'",
        "jax>=0.6; extra == 'jax'",
        "optax>=0.2.4; extra == 'jax'",
        "matplotlib>=3.9; extra == 'plot'",
        "optuna<6,>=5; extra == 'tune'",
        "duetto[plot]; extra == 'tune'",
    )

    def __init__(self, installer: str = "pip\n", **origin: Any) -> None:
        self.files = {"INSTALLER": installer} | ({"direct_url.json": json.dumps(origin)} if origin else {})

    def read_text(self, name: str) -> str | None:
        return self.files.get(name)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    def tell(distribution: Distribution, *names: str) -> str:
        monkeypatch.setattr(extras, "distribution", lambda _: distribution)
        return extras.install(*names)

    return tell


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    (folder / "constraints.txt").touch()
    return folder


def test_a_checkout_with_its_constraints(told: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch):
    editable = Distribution(url=checkout.as_uri(), dir_info={"editable": True})
    copied = Distribution(url=checkout.as_uri(), dir_info={})
    assert told(editable, "jax") == f'pip install -c "{checkout}/constraints.txt" -e "{checkout}[jax]"'
    monkeypatch.chdir(checkout)
    assert told(editable, "torch", "onnx") == 'pip install -c constraints.txt -e ".[torch,onnx]"'
    assert told(copied, "jax") == 'pip install -c constraints.txt ".[jax]"'
    (checkout / "constraints.txt").unlink()
    assert told(copied, "jax") == 'pip install ".[jax]"'


def test_a_wheel_and_a_repository(told: Any, tmp_path: Path):
    wheel = tmp_path / "duetto-0.1.0-py3-none-any.whl"
    wheel.touch()
    told_of_wheel = told(Distribution(url=wheel.as_uri(), archive_info={}), "jax")
    assert told_of_wheel == f'pip install "duetto[jax] @ {wheel.as_uri()}"'
    cloned = Distribution(url="https://example.org/duetto.git", vcs_info={"vcs": "git", "commit_id": "c0ffee"})
    assert told(cloned, "jax") == 'pip install "duetto[jax] @ git+https://example.org/duetto.git@c0ffee"'


def test_where_the_source_is_unknown_or_gone_the_packages_are_named(told: Any, tmp_path: Path):
    """A registry's package of this name is not ours."""
    assert told(Distribution(), "jax") == 'pip install "jax>=0.6" "optax>=0.2.4"'
    assert told(Distribution(url=(tmp_path / "gone").as_uri(), dir_info={}), "torch") == 'pip install "torch>=2.6"'
    assert told(Distribution(), "tune") == 'pip install "optuna<6,>=5" "matplotlib>=3.9"'


def test_with_uv(told: Any):
    assert told(Distribution("uv"), "torch") == 'uv pip install "torch>=2.6"'


def test_no_sentence_sends_anyone_to_a_registry():
    for path in SOURCE.rglob("*.py"):
        if path != Path(extras.__file__):
            found = re.findall(r"""pip install .{0,20}duetto.*""", path.read_text())
            assert not found, f"{path.name}: {found}. Use duetto.extras.install."


def test_all_that_is_pinned_can_be_had_on_the_oldest_python():
    """Soupsieve wanted 3.11.5, and Debian has 3.11.2: the README's command failed there."""
    lines = (SOURCE.parents[1] / "constraints.txt").read_text().splitlines()
    refusing = []
    for name in (line.partition("==")[0] for line in lines if "==" in line and not line.startswith("#")):
        with suppress(PackageNotFoundError):
            wanted = distribution(name).metadata.get("Requires-Python") or ""
            if not SpecifierSet(wanted).contains("3.11.0"):
                refusing.append(f"{name} wants Python {wanted}")
    assert refusing == []
