"""Selection of backend and device by "auto", and errors for a missing framework or GPU."""

from __future__ import annotations

import builtins
import sys

import pytest
from learning_cases import ACTION, VECTOR, box, small

from duetto import learners
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.networks.spaces import Dict

IMAGE = box(3, 8, 8, dtype="uint8")
BOTH = Dict((("camera", IMAGE), ("speed", box(1))))


@pytest.fixture
def machine(monkeypatch):
    """Simulate a machine: `present` backends are installed, `cuda` backends see a GPU."""

    def set_up(present="torch jax", cuda=""):
        monkeypatch.setattr(learners, "installed", lambda backend: backend in present)
        monkeypatch.setattr(learners, "_has_cuda", lambda backend, threads: backend in cuda)
        monkeypatch.setattr(learners.Path, "exists", lambda path: bool(cuda) and str(path) == "/dev/nvidia0")

    return set_up


def test_auto_with_one_or_no_framework_installed(machine):
    for only, observation in (("torch", VECTOR), ("jax", IMAGE)):
        machine(only)
        assert learners.choose(observation, "auto", "auto") == (only, "cpu")
    machine("")
    with pytest.raises(UsageError) as refusal:
        learners.choose(VECTOR, "auto", "auto")
    assert str(refusal.value).endswith(f"Install: {install('jax')}, or: {install('torch')}")


@pytest.mark.parametrize(
    ("cuda", "observation", "requested", "expected"),
    [
        ("", VECTOR, ("auto", "auto"), ("jax", "cpu")),
        ("", BOTH, ("auto", "auto"), ("torch", "cpu")),
        ("", VECTOR, ("torch", "cpu"), ("torch", "cpu")),
        ("", VECTOR, ("jax", "cuda"), ("jax", "cuda")),  # `build` rejects it
        ("torch jax", VECTOR, ("auto", "auto"), ("torch", "cuda")),
        ("torch", VECTOR, ("jax", "auto"), ("jax", "cpu")),
        ("torch", VECTOR, ("torch", "auto"), ("torch", "cuda")),
        ("jax", VECTOR, ("auto", "auto"), ("jax", "cuda")),  # PyTorch sees no GPU
        ("neither", VECTOR, ("auto", "cuda"), ("torch", "cuda")),  # `build` rejects it
        ("neither", VECTOR, ("auto", "auto"), ("jax", "cpu")),  # JAX is faster on a CPU
    ],
)
def test_auto_selects_fastest_backend_and_visible_gpu(machine, cuda, observation, requested, expected):
    machine(cuda=cuda)
    assert learners.choose(observation, *requested) == expected


def test_other_missing_module_is_not_a_missing_framework(monkeypatch):
    """A bug in Duetto or a broken installation must not be reported as "pip install torch"."""
    hide_package(monkeypatch, "array_api_compat", "duetto.learners.torch")
    with pytest.raises(ModuleNotFoundError, match="array_api_compat"):
        learners.build("torch", small(), VECTOR, ACTION)


def hide_package(monkeypatch, package, *importers):
    """Make `import package` fail as if it were not installed, and unload `importers` to import them again."""
    for module in importers:
        monkeypatch.delitem(sys.modules, module, raising=False)
    real = builtins.__import__

    def importing(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_missing_gpu_is_rejected(backend, monkeypatch):
    monkeypatch.setattr(learners, "_has_cuda", lambda backend, threads: False)
    with pytest.raises(UsageError, match=r"finds no CUDA device\. Use --device cpu"):
        learners.build(backend, small(), VECTOR, ACTION, device="cuda")
