"""The command that installs a missing extra."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from duetto import install_hint

SOURCE = Path(install_hint.__file__).parent


class Distribution:
    """The metadata of an installed package."""

    requires = (
        "numpy>=2.0",
        "torch>=2.6; extra == 'torch'",
        "jax>=0.6; extra == 'jax'",
        "optax>=0.2.4; extra == 'jax'",
        "matplotlib>=3.9; extra == 'plot'",
        "optuna<6,>=5; extra == 'tune'",
        "duetto[plot]; extra == 'tune'",
    )

    def __init__(self, installer: str = "pip\n") -> None:
        self.files = {"INSTALLER": installer}

    def read_text(self, name: str) -> str | None:
        return self.files.get(name)


@pytest.fixture
def install_command(monkeypatch: pytest.MonkeyPatch) -> Any:
    def tell(distribution: Distribution, *names: str) -> str:
        monkeypatch.setattr(install_hint, "distribution", lambda _: distribution)
        return install_hint.install(*names)

    return tell


def test_install_command_lists_packages_of_the_extra(install_command: Any):
    """Not `duetto[jax]`: the package of that name in a registry is another project."""
    assert install_command(Distribution(), "jax") == 'pip install "jax>=0.6" "optax>=0.2.4"'
    assert install_command(Distribution(), "torch", "plot") == 'pip install "torch>=2.6" "matplotlib>=3.9"'
    assert install_command(Distribution(), "tune") == 'pip install "optuna<6,>=5" "matplotlib>=3.9"'


def test_install_command_uses_uv(install_command: Any):
    assert install_command(Distribution("uv"), "torch") == 'uv pip install "torch>=2.6"'


def test_messages_never_install_duetto_from_a_registry():
    for path in SOURCE.rglob("*.py"):
        if path != Path(install_hint.__file__):
            found = re.findall(r"""pip install .{0,20}duetto.*""", path.read_text())
            assert not found, f"{path.name}: {found}. Use duetto.install_hint.install."


def test_pinned_packages_support_the_oldest_python():
    """Debian has Python 3.11.2, so a package that requires 3.11.5 cannot be installed there."""
    lines = (SOURCE.parents[1] / "constraints.txt").read_text().splitlines()
    refusing = []
    for name in (line.partition("==")[0] for line in lines if "==" in line and not line.startswith("#")):
        with suppress(PackageNotFoundError):
            wanted = distribution(name).metadata.get("Requires-Python") or ""
            if not SpecifierSet(wanted).contains("3.11.0"):
                refusing.append(f"{name} wants Python {wanted}")
    assert refusing == []
