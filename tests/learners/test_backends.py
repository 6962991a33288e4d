"""Which backend and device "auto" means, and what is said where a framework is missing."""

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
    """A machine with some backends and, to some of them, a GPU."""

    def set_up(present="torch jax", cuda=""):
        monkeypatch.setattr(learners, "installed", lambda backend: backend in present)
        monkeypatch.setattr(learners, "_has_cuda", lambda backend, threads: backend in cuda)
        monkeypatch.setattr(learners.Path, "exists", lambda path: bool(cuda) and str(path) == "/dev/nvidia0")

    return set_up


@pytest.mark.parametrize(("observation", "fastest"), [(VECTOR, "jax"), (IMAGE, "torch"), (BOTH, "torch")])
def test_auto_is_the_measured_fastest(machine, observation, fastest):
    machine()
    assert learners.choose(observation, "auto", "auto") == (fastest, "cpu")


def test_of_one_it_is_that_one_and_of_none_both_are_offered(machine):
    for only, observation in (("torch", VECTOR), ("jax", IMAGE)):
        machine(only)
        assert learners.choose(observation, "auto", "auto") == (only, "cpu")
    machine("")
    with pytest.raises(UsageError) as refusal:
        learners.choose(VECTOR, "auto", "auto")
    assert str(refusal.value).endswith(f"Install: {install('jax')}, or: {install('torch')}")


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_what_is_asked_for_is_taken(machine, backend):
    machine()
    assert learners.choose(VECTOR, backend, "cpu") == (backend, "cpu")
    assert learners.choose(VECTOR, backend, "cuda") == (backend, "cuda")  # and refused by the learner, if there is none


def test_a_gpu_is_taken_where_the_backend_can_use_it(machine):
    machine(cuda="torch jax")
    assert learners.choose(VECTOR, "auto", "auto") == ("torch", "cuda")
    machine(cuda="torch")
    assert learners.choose(VECTOR, "jax", "auto") == ("jax", "cpu")
    assert learners.choose(VECTOR, "torch", "auto") == ("torch", "cuda")
    assert learners.choose(VECTOR, "torch", "cpu") == ("torch", "cpu")


def test_a_gpu_that_the_faster_one_does_not_see_is_taken_with_the_other(machine):
    machine(cuda="jax")
    assert learners.choose(VECTOR, "auto", "auto") == ("jax", "cuda")
    assert learners.choose(VECTOR, "auto", "cuda") == ("jax", "cuda")
    assert learners.choose(VECTOR, "auto", "auto", possible=["torch"]) == ("torch", "cpu")
    machine(cuda="neither")
    assert learners.choose(VECTOR, "auto", "cuda") == ("torch", "cuda")  # and refused by the learner
    assert learners.choose(VECTOR, "auto", "auto") == ("jax", "cpu")  # the faster one there
    assert learners.choose(IMAGE, "auto", "auto") == ("torch", "cpu")


def test_installed_asks_for_every_package(monkeypatch):
    monkeypatch.setattr(learners, "find_spec", lambda package: None if package == "optax" else object())
    assert learners.installed("torch")
    assert not learners.installed("jax")


@pytest.mark.parametrize(("backend", "package"), [("torch", "torch"), ("jax", "jax"), ("jax", "optax")])
def test_a_missing_framework_names_the_extra(monkeypatch, backend, package):
    without(monkeypatch, package, f"duetto.learners.{backend}", f"duetto.networks.{backend}")
    with pytest.raises(UsageError) as refusal:
        learners.build(backend, small(), VECTOR, ACTION)
    expected = f"The {backend} backend needs {package}, which is not installed. Install: {install(backend)}"
    assert str(refusal.value) == expected


def test_another_missing_module_is_no_missing_framework(monkeypatch):
    """A bug of ours, or a broken installation, must not be told as "pip install torch"."""
    without(monkeypatch, "array_api_compat", "duetto.learners.torch")
    with pytest.raises(ModuleNotFoundError, match="array_api_compat"):
        learners.build("torch", small(), VECTOR, ACTION)


def without(monkeypatch, package, *importers):
    """Let the importers be imported afresh, and let the import of the package fail, as where it is not installed."""
    for module in importers:
        monkeypatch.delitem(sys.modules, module, raising=False)
    real = builtins.__import__

    def importing(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_a_gpu_that_is_not_there_is_refused(backend, monkeypatch):
    from duetto.learners import jax as jax_learner
    from duetto.learners import torch as torch_learner

    for module, name in ((torch_learner, "has_cuda"), (jax_learner, "jax_has_cuda")):
        monkeypatch.setattr(module, name, lambda: False)
    with pytest.raises(UsageError, match="sees no CUDA device here: use --device cpu"):
        learners.build(backend, small(), VECTOR, ACTION, device="cuda")
