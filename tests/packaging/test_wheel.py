"""The sdist and the wheel: their files, and an installation outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import duetto

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "duetto"
PYTHONS = ("3.11", "3.13")  # the oldest and the newest
NO_NETWORK = ("name resolution", "Connection refused", "Network is unreachable", "No route to host", "timed out")

# Import every module; print the packages that are missing.
IMPORT_EVERYTHING = """
import importlib, pkgutil, duetto
for module in pkgutil.walk_packages(duetto.__path__, "duetto.", onerror=lambda name: None):
    try:
        if module.name != "duetto.__main__":
            importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(error.name)
"""
OPTIONAL_MODULES = {
    "torch",
    "jax",
    "equinox",
    "optax",
    "ray",
    "grpc",
    "onnxruntime",
    "gymnax",
    "mujoco_playground",
    "navix",
}  # grpc comes with ray[client]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both; return their folder. The wheel is built from the sdist, so the sdist must be complete."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    [path] = distributions.glob("*.whl")
    return path


def run(*command: str, cwd: Path | None = None, **environ: str) -> str:
    """Run a command and return its output. If it fails, the test fails with the output."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=cwd, env=kept | environ, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_sdist_has_sources_and_no_results(distributions: Path):
    [path] = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.split("/")[0] for name in names} == {
        *("CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "constraints.txt", "src", ".gitignore")
    }
    assert path.stat().st_size < 1e6


def test_wheel_has_exactly_the_package_files(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(info).decode())
    package = {name for name in names if ".dist-info/" not in name}
    here = {path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert package == {path.relative_to(SOURCE.parent).as_posix() for path in here}
    assert {"duetto/py.typed", "duetto/presets/td3.yaml", "duetto/tools/cli/train.py"} <= package
    assert info.replace("METADATA", "licenses/LICENSE") in names
    assert metadata["Version"] == duetto.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert f"## {metadata['Version']}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("version", PYTHONS)
def test_installed_wheel_works_with_only_its_dependencies(wheel: Path, tmp_path: Path, version: str):
    python = install(wheel, tmp_path / "venv", version)
    command = python.with_name("duetto")
    strict = {"PYTHONWARNINGS": "error", "COLUMNS": "100"}
    where = run(str(python), "-c", "import duetto; print(duetto.__file__)", cwd=tmp_path, **strict)
    assert Path(where.strip()).is_relative_to(tmp_path)
    lacking = run(str(python), "-c", IMPORT_EVERYTHING, cwd=tmp_path, **strict)
    assert set(lacking.split()) <= OPTIONAL_MODULES
    assert "train" in run(str(command), "--help", cwd=tmp_path, **strict)
    assert "HalfCheetah-v5" in run(str(command), "list", cwd=tmp_path, **strict)
    refused = subprocess.run([command, "train", "td3", "Pendulum-v1"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert 'Install: pip install "equinox>=0.13" "flatbuffers>=24" "jax>=0.6" "optax>=0.2.4"' in refused.stderr


def install(wheel: Path, folder: Path, version: str) -> Path:
    """Install the wheel with its dependencies into a new virtual environment; return its Python."""
    run(interpreter(version), "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    constrained = ["-c", str(ROOT / "constraints.txt"), str(wheel)]
    done = subprocess.run([*pip, "install", "--no-compile", "-q", *constrained], capture_output=True, text=True)
    if done.returncode != 0 and any(sign in done.stderr for sign in NO_NETWORK):
        pytest.skip("the dependencies cannot be downloaded here")
    assert done.returncode == 0, done.stderr
    return python


def interpreter(version: str) -> str:
    """Return a Python of this version: this one, one on the path, or one of pyenv. Skip if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    asked = "import sys; print(*sys.version_info[:2], sep='.')"
    for found in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")):
        answer = found and subprocess.run([found, "-c", asked], capture_output=True, text=True).stdout.strip()
        if answer == version:
            return str(found)
    pytest.skip(f"there is no Python {version} here")
