"""What CUDA graphs would play back, shown without a GPU.

A tape on the processor does what a CUDA graph does: it keeps operations and the memory that they read and write, and
does them again in that memory, without the program that asked for them. Whatever of an update is no tensor stays what
it was when it was recorded; so an update that takes anything else from Python gives other numbers here.

And tensors without values (PyTorch's device `meta`) find what CUDA would refuse: work that looks at a value, whose
shapes depend on one, or that copies from the processor's memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from learning_cases import batch, build, small
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from duetto import learners
from duetto.algorithms import ALGORITHMS, TD3
from duetto.functional.pytree import tree_stack
from duetto.learners import cuda_graphs as recorded
from duetto.learners.base import Update, on_host
from duetto.learners.cuda_graphs import GraphRecorder
from duetto.learners.torch import TorchLearner
from duetto.testing import conformance

PROCESSOR = torch.device("cpu")


# ------------------------------------------------------------------------------------------------ stand-ins
class _Operations(TorchDispatchMode):
    """Notes every operation, with the very tensors that it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        self.noted.append((func, args, kwargs or {}, given))
        return given


class ProcessorTape:
    """See `Tape`."""

    recorded = 0

    def warm_up(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def record(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        self.recorded += 1
        with _Operations() as tape:
            results = work()

        def again() -> None:
            with torch.no_grad():
                for func, args, kwargs, given in tape.noted:
                    for old, new in zip(tree_leaves(given), tree_leaves(func(*args, **kwargs)), strict=True):
                        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                            old.copy_(new)

        return again, results


def recording(learner: Any) -> Any:
    """The learner, as if it were on a GPU that records."""
    assert isinstance(learner, TorchLearner)
    assert learner._recordable()
    learner._recorder = GraphRecorder(PROCESSOR, learner._changing, ProcessorTape())
    return learner


def outcome(learner: Any) -> list[np.ndarray]:
    state = learner.state_dict()
    return [np.asarray(leaf) for leaf in tree_leaves([state["parameters"], state["optimizers"]])]


@contextlib.contextmanager
def trials(name: str) -> Iterator[list[Any]]:
    """Of an algorithm, without recurrent layers."""
    options = {"recurrent": "none"} if "recurrent" in ALGORITHMS[name].options() else {}
    with conformance._trials(ALGORITHMS[name], **options) as found:
        yield found


# ------------------------------------------------------------------------------------------------ played back
@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_played_back_are_those_asked_for(name: str):
    """With every kind of phase, changing rates and schedules, on every kind of space; and actions."""
    with trials(name) as found:
        for trial in found:
            own = trial.algorithm, trial.observation, trial.action
            pair = [learners.build("torch", *own, threads=1) for _ in range(2)]
            recording(pair[1])
            conformance._compare_pair(trial, pair)


def test_learning_rates_arrive_with_the_batch():
    """The second of two updates with a rate of 0 changes nothing; an update recorded with another rate would."""
    learner = recording(
        build("torch", small(TD3, policy_delay=1, tau=0.0, learning_rate_decay="linear", learning_rate_final=0.0))
    )
    learner.update(batch(), 0.0)
    before = learner.parameters()
    learner.update(batch(), 1.0)
    for name, values in learner.parameters().items():
        for key, value in values.items():
            np.testing.assert_array_equal(value, before[name][key])


def test_what_is_tried_before_it_is_recorded_changes_nothing():
    """One update is one step of every optimiser, and those after it are the first one's."""
    learner = recording(build("torch", small(TD3, policy_delay=2)))
    for _ in range(4):
        learner.update(batch())
    assert {name: state["steps"] for name, state in learner.optimizer_state().items()} == {"critic": 4, "actor": 2}
    assert learner._recorder._tape.recorded == 2  # one a phase


def test_a_run_that_goes_on_is_played_back_to_the_same_bits():
    with trials("ppo") as (trial, *_):
        own = trial.algorithm, trial.observation, trial.action
        whole, first, second = (recording(learners.build("torch", *own, seed=1, threads=1)) for _ in range(3))
        batches = trial.batches(4)
    for one in batches:
        whole.update(one)
    for one in batches[:2]:
        first.update(one)
    second.load_state_dict(first.state_dict())
    for one in batches[2:]:
        second.update(one)
    for ours, theirs in zip(outcome(whole), outcome(second), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_batches_of_another_shape_are_recorded_anew():
    learner, asked = recording(build("torch", small(TD3))), build("torch", small(TD3))
    for size in (32, 32, 16, 16, 32):
        for one in (learner, asked):
            one.update(batch(size))
    assert learner._recorder._tape.recorded == 4  # two phases of two sizes
    for ours, theirs in zip(outcome(learner), outcome(asked), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_what_an_update_gave_outlasts_the_next_one():
    learner = recording(build("torch", small(TD3)))
    first = learner.update(batch(seed=0))
    values = on_host(first.values).copy()
    for seed in (1, 2, 3):
        learner.update(batch(seed=seed))
    np.testing.assert_array_equal(on_host(first.values), values)


def test_parameters_that_are_loaded_are_those_that_act_and_learn():
    """Recorded work reads the memory that they are loaded into."""
    learner, other = recording(build("torch", small(TD3), seed=0)), build("torch", small(TD3), seed=1)
    obs = batch().obs
    learner.collect(obs, None)
    learner.load_parameters(other.parameters())
    np.testing.assert_allclose(learner.collect(obs, None)[0], other.collect(obs, None)[0], rtol=1e-5)


@pytest.mark.parametrize("adapted", [False, True], ids=["one rate", "a rate for each seed"])
def test_seeds_side_by_side(adapted: bool):
    """Played back they are what they are asked for, with minibatches of their own."""
    with trials("ppo") as (trial, *_):
        own = trial.algorithm, trial.observation, trial.action
        batches = trial.batches(6)
        pair: list[Any] = [learners.build("torch", *own, seed=(0, 1), threads=1) for _ in range(2)]
    recording(pair[1])
    random = np.random.default_rng(0)
    for some in zip(batches[::2], batches[1::2], strict=True):
        rows = np.stack([trial.algorithm.split(random, len(one.weight)) for one in some])
        rates = {name: np.array([1e-3, 2e-3 if adapted else 1e-3]) for name in pair[0].optimizer_specs}
        scheduled = {name: np.full(2, value) for name, value in trial.algorithm.scheduled(0.0).items()}
        update = Update(0, tree_stack(some), rows, None, rates, scheduled)
        found = [one.update_alike([update])[0] for one in pair]
        np.testing.assert_allclose(*(on_host(one.values) for one in found), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(outcome(pair[0]), outcome(pair[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


# ------------------------------------------------------------------------------------------------ without values
class _NoCopies(TorchDispatchMode):
    """Operations that take from the processor, or give to it, fail."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._fused_adam_.tensor_lr, torch.ops.aten._fused_adamw_.tensor_lr):
            return None  # which is not known there
        given = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, given)) if isinstance(leaf, torch.Tensor)]
        where = {tensor.device.type for tensor in tensors}
        if len(where) > 1:
            raise AssertionError(f"{func} copies from the processor: {sorted(where)}")
        return given


class _NoNumbers(TorchFunctionMode):
    """So do tensors made of Python's numbers, which are copied there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.Tensor.new_tensor):
            raise AssertionError(f"{func} copies from the processor")
        return func(*args, **(kwargs or {}))


class _WithoutValues(ProcessorTape):
    @contextlib.contextmanager
    def warm_up(self) -> Iterator[None]:
        with _NoCopies(), _NoNumbers():
            yield

    def record(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        self.recorded += 1
        with self.warm_up():
            return lambda: None, work()


def without_values(trial: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner on PyTorch's device `meta`."""
    monkeypatch.setattr(recorded.DeviceInputs, "copy", lambda self, inputs: None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # which knows no such device
    learner: Any = learners.build("torch", trial.algorithm, trial.observation, trial.action, device="meta")
    learner._recorder = GraphRecorder(learner.device, learner._changing, _WithoutValues())
    return learner


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_that_cuda_would_not_record(name: str, monkeypatch: pytest.MonkeyPatch):
    with trials(name) as found:
        for trial in found:
            learner = without_values(trial, monkeypatch)
            for one in trial.batches(conformance.UPDATES):
                learner.update(one)
            assert learner._recorder._tape.recorded > 0


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda x: x * x.mean().item(),
        lambda x: x * torch.ones(1),
        lambda x: x * torch.tensor(1.0, device=x.device),
        lambda x: x[x > 0],
    ],
    ids=["a value", "of the processor", "a number", "a shape"],
)
def test_what_cuda_would_not_record_is_seen(spoilt: Any, monkeypatch: pytest.MonkeyPatch):
    loss = TD3.critic_loss

    def spoiling(self: TD3, nets: Any, *args: Any) -> Any:
        value, info = loss(self, nets, *args)
        return spoilt(value[None]).sum(), info

    monkeypatch.setattr(TD3, "critic_loss", spoiling)
    with trials("td3") as (trial, *_):
        learner = without_values(trial, monkeypatch)
        with pytest.raises((AssertionError, RuntimeError)):
            learner.update(trial.batches(1)[0])
