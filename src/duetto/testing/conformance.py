"""Checks of algorithms. Each takes an algorithm's class, and raises AssertionError if the check fails."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from duetto import environments, learners
from duetto.algorithms import Algorithm
from duetto.errors import UsageError
from duetto.learners import Backend, Learner
from duetto.learners.base import on_host
from duetto.learners.multi_seed import SeedGroup
from duetto.learners.policy import NumpyPolicy, Parameters, Policy, in_numpy
from duetto.networks import masks
from duetto.networks.spaces import Dict
from duetto.testing.trials import (
    ACTIONS,
    OBSERVATIONS,
    THREADS,
    Alternatives,
    Trial,
    alternative,
    quick_algorithm,
    supported_spaces,
    write_demonstrations,
)
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer
from duetto.training.policy import EvaluationPolicy

BACKENDS: tuple[Backend, ...] = ("torch", "jax")
UPDATES = 12
ACTED = 6  # steps in a comparison of actions
APART = ("log", "evaluations", "trainer", "config")  # parts of a state that are not compared, such as clocks
SOON = 24  # steps after which most options have changed a result
TOGETHER, LESSONS = (0, 5), 3  # the seeds that train together, and the number of updates of each


def check_parity(kind: type[Algorithm]) -> None:
    """Check that after the same updates, PyTorch and JAX have equal parameters, metrics, priorities and actions."""
    with _trials(kind) as (trial, *_):
        _compare(trial)


def check_spaces(kind: type[Algorithm]) -> None:
    """Repeat `check_parity` on the other spaces that the algorithm supports, such as Dict spaces and images."""
    with _trials(kind) as (_, *trials):
        for trial in trials:
            _compare(trial)


def check_recurrence(kind: type[Algorithm]) -> None:
    """Repeat `check_parity` with LSTM and GRU layers."""
    if "recurrent" not in kind.options():
        return
    for cell in ("lstm", "gru"):
        with _trials(kind, recurrent=cell) as (trial, *_):
            _compare(trial)


def check_acting(kind: type[Algorithm]) -> None:
    """Check that NumPy and PyTorch compute nearly equal actions with the same parameters.

    The actions are those of training and of evaluations. JAX is checked on the simplest spaces only.
    """
    for cell in ("none", "lstm", "gru") if "recurrent" in kind.options() else ("none",):
        with _trials(kind, recurrent=cell) as trials:
            for number, trial in enumerate(trials):
                compare_acting(trial, BACKENDS if number == 0 else BACKENDS[:1])


def check_state(kind: type[Algorithm]) -> None:
    """Check that a learner that has loaded another learner's state continues like that learner, bit for bit."""
    with _trials(kind) as (trial, *_):
        batches = trial.batches(6)
        for backend in BACKENDS:
            one, other = _learner(trial, backend), _learner(trial, backend, seed=1)
            for batch in batches[:3]:
                one.update(batch, 0.1)
            other.load_state_dict(one.state_dict())
            for batch in batches[3:]:
                for learner in (one, other):
                    learner.update(batch, 0.5)
            for name, value in flat(one.state_dict()).items():
                again = flat(other.state_dict())[name]
                assert np.array_equal(value, again), f"{kind.name()}, {backend}: {name} differs after loading a state"


def check_resuming(kind: type[Algorithm], backend: Backend = "torch", device: str = "cpu") -> None:
    """Check that a run of 48 steps ends in the same state if it is repeated, or stopped and resumed."""
    with _trials(kind, recurrent="lstm") as (trial, *_):
        _compare_runs(trial, backend, device=device)


def _compare_runs(trial: Trial, backend: Backend, **how: Any) -> None:
    """Compare a run of 48 steps with a repeated run, and with a stopped and resumed run."""
    name = trial.algorithm.name()
    whole, again = (_outcome(trial, backend, 48, **how) for _ in range(2))
    parts = _outcome(trial, backend, 48, stop=29, **how)
    for key, value in whole.items():
        if key.endswith("/seconds"):  # how long an episode took
            continue
        assert np.array_equal(value, again[key]), f"{name}: {key} differs in a repeated run"
        assert np.array_equal(value, parts[key]), f"{name}: {key} differs in a resumed run"


def _expect_refusal(call: Callable[[], Any], names: Sequence[str], otherwise: str) -> None:
    """Assert that `call` raises a UsageError that contains all `names`. If it raises none, fail with `otherwise`."""
    error = ""
    try:
        call()
    except UsageError as refusal:
        error = str(refusal)
    assert error, otherwise
    for name in names:
        assert name in error, f"the error does not name {name}: {error}"


def check_precision(kind: type[Algorithm]) -> None:
    """Check that one update has nearly the same metrics in bfloat16 as in float32."""
    with _trials(kind) as (trial, *_):
        batch = trial.batches(1)[0]
        for backend in BACKENDS:
            exact, rough = (_metrics(_learner(trial, backend, precision=p).update(batch)) for p in ("float32", "bf16"))
            for name, value in exact.items():
                near = abs(rough[name] - value) <= 0.1 * (1 + abs(value))
                assert near, f"{kind.name()}, {backend}: {name} is {rough[name]} in bfloat16 and {value} in float32"


def check_masks(kind: type[Algorithm], backend: Backend = "torch") -> None:
    """Repeat `check_parity` with action masks, and check that a run with masks resumes exactly.

    The run's environment raises an error at a forbidden action. Demonstrations contain no masks, so algorithms
    that learn from demonstrations must refuse the environment.
    """
    with _trials(kind) as trials:
        masked = [dataclasses.replace(trial, masked=True) for trial in trials if masks.choice_sizes(trial.action)][:1]
        if masked and "demonstrations" in kind.options():
            otherwise = f"{kind.name()} learns from demonstrations, but accepts action masks"
            _expect_refusal(lambda: _outcome(masked[0], backend, 1), (kind.name(),), otherwise)
            return
        for trial in masked:
            _compare(trial)
            recurrent = {"recurrent": "lstm"} if "recurrent" in kind.options() else {}
            trial = dataclasses.replace(trial, algorithm=trial.algorithm.with_options(**recurrent))
            _compare_runs(trial, backend)


def check_together(kind: type[Algorithm], backend: Backend = "torch") -> None:
    """Check that two seeds that train together get the same results as each seed alone.

    This uses the simplest spaces, action masks, and Dict actions. Algorithms that cannot train seeds together, such as
    recurrent algorithms, must raise UsageError.
    """
    with _trials(kind) as trials:
        learns_from_masks = "demonstrations" not in kind.options()
        masked = [dataclasses.replace(trial, masked=True) for trial in trials if masks.choice_sizes(trial.action)]
        joint = [trial for trial in trials if isinstance(trial.action, Dict)]
        for trial in (trials[0], *(masked[:1] if learns_from_masks else ()), *joint[:1]):
            _compare_together(trial, backend)


def check_device(kind: type[Algorithm], backend: Backend, device: str) -> None:
    """Check that updates on a device agree with those on the CPU, and that runs on it repeat and resume exactly.

    This check is not in `CHECKS`, because few machines have a GPU.
    """
    with _trials(kind) as (trial, *_):
        pair = [_learner(trial, backend, device=one) for one in ("cpu", device)]
        _compare_pair(trial, pair)
    check_resuming(kind, backend, device=device)


def check_options(kind: type[Algorithm], alternatives: Alternatives | None = None) -> None:
    """Check that each option that the class adds affects a run, and that PyTorch and JAX agree at another value.

    `Algorithm.alternatives` can set this value.

    Args:
        kind: The class of the algorithm.
        alternatives: Check all options with these values instead, without comparing the frameworks.
    """
    own = inspect.get_annotations(kind) if alternatives is None else {}
    unread: list[str] = []
    with _trials(kind) as (trial, *_):
        base: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        for field in dataclasses.fields(kind):
            values = kind.alternatives if alternatives is None else alternatives
            if alternatives is None and field.name not in own:
                continue
            if (other := alternative(trial.algorithm, field.name, values)) is None:
                continue
            value, others = other
            before = dataclasses.replace(trial, algorithm=trial.algorithm.with_options(**others))
            after = dataclasses.replace(before, algorithm=before.algorithm.with_options(**{field.name: value}))
            if field.name in own:
                _compare(after)
            for steps in (SOON, 48):  # 24 steps show most differences
                key = (repr(sorted(others.items())), steps)
                if key not in base:
                    base[key] = _outcome(before, "torch", steps)
                one, another = base[key], _outcome(after, "torch", steps)
                if one.keys() != another.keys() or not all(np.array_equal(one[name], another[name]) for name in one):
                    break
            else:
                unread.append(f"{field.name} {value!r}" + (f" (with {others})" if others else ""))
        assert not unread, f"{kind.name()}: {', '.join(unread)} has no effect. Is the option used?"


def check_refusals(kind: type[Algorithm]) -> None:
    """Check that the algorithm trains with Dict actions, or refuses them with an error that names the algorithm."""
    algorithm = quick_algorithm(kind)
    with _trials(kind) as trials:
        for trial in [trial for trial in trials if isinstance(trial.action, Dict)][:1]:
            try:
                with TemporaryDirectory() as folder, closing(trial.trainer("torch", Path(folder))) as trainer:
                    trainer.run()
            except Exception as error:
                raise AssertionError(f"{kind.name()} fails with actions of {trial.action}, but accepts them") from error
            return
    _, observation, action = supported_spaces(algorithm)[0]
    unsupported = Dict((("a", action),)) if not isinstance(action, Dict) else action
    _expect_refusal(
        lambda: algorithm.check_spaces(observation, unsupported, "Somewhere-v0"),
        (kind.name(), "Somewhere-v0"),
        f"{kind.name()} accepts actions of {unsupported}: check_spaces raises no UsageError",
    )


CHECKS: dict[str, Callable[[type[Algorithm]], None]] = {
    "refusals": check_refusals,
    "parity": check_parity,
    "spaces": check_spaces,
    "recurrence": check_recurrence,
    "acting": check_acting,
    "state": check_state,
    "resuming": check_resuming,
    "precision": check_precision,
    "masks": check_masks,
    "together": check_together,
    "options": check_options,
}


# ------------------------------------------------------------------------------------------------ shared parts
@contextmanager
def _trials(kind: type[Algorithm], **options: Any) -> Iterator[list[Trial]]:
    """Yield a trial for each pair of spaces that the algorithm supports, the simplest first.

    Raises UsageError if it supports none.
    """
    with TemporaryDirectory() as parent:
        trials = []
        if not (taken := supported_spaces(quick_algorithm(kind))):
            raise UsageError(
                f"{kind.name()} cannot be checked: its check_spaces refuses all spaces of the trials, such as "
                f"observations {OBSERVATIONS['vector']} with actions {ACTIONS['numbers']} or {ACTIONS['choice']}."
            )
        for name, observation, action in taken:
            folder = None
            if "demonstrations" in kind.options():
                folder = Path(parent, name)
                folder.mkdir()
                folder = write_demonstrations(folder, observation, action)
            trials.append(Trial(quick_algorithm(kind, folder, **options), observation, action))
        yield trials


def _learner(trial: Trial, backend: Backend, seed: int = 0, **options: Any) -> Learner:
    spaces = trial.observation, trial.action
    return learners.build(backend, trial.algorithm, *spaces, seed=seed, threads=THREADS[backend], **options)


def _compare(trial: Trial) -> None:
    _compare_pair(trial, [_learner(trial, backend) for backend in BACKENDS])


def _compare_pair(trial: Trial, pair: Sequence[Learner]) -> None:
    about = f"{trial}, {pair[0].backend} and {pair[1].backend}"
    _close(pair, 0.0, f"{about}, at the start")
    batches = trial.batches(UPDATES)
    for number, batch in enumerate(batches, 1):
        metrics = [learner.update(batch, (number - 1) / UPDATES) for learner in pair]
        assert metrics[0].names == metrics[1].names, f"{about}: metrics {metrics[0].names} and {metrics[1].names}"
        tolerance = 1e-4 if number <= 2 else 1e-3  # Adam amplifies the rounding of tiny gradients
        ours, theirs = (on_host(one.values) for one in metrics)
        _near(ours, theirs, 10 * tolerance, f"{about}, update {number}, metrics {metrics[0].names}")
        if metrics[0].priority is not None:
            ours, theirs = (on_host(one.priority) for one in metrics)
            _near(ours, theirs, tolerance, f"{about}, update {number}, priorities")
        _close(pair, tolerance, f"{about}, update {number}")
    if pair[0].on_policy or pair[0].recurrent:
        return  # `check_acting` compares the actions of these learners
    noise, _ = trial.algorithm.explorer().draw(
        np.random.default_rng(0), np.zeros((8, trial.action.size), np.float32), 0, 100, trial.action
    )
    for drawn in (None, noise):
        ours, theirs = (learner.act(batches[0].obs, drawn) for learner in pair)
        _near(ours, theirs, 1e-3, f"{about}, actions")


def _compare_together(trial: Trial, backend: Backend) -> None:
    about = f"{trial} of two seeds together and alone"
    group, seeds = SeedGroup(TOGETHER), range(len(TOGETHER))
    how: dict[str, Any] = {"device": "cpu", "precision": "float32", "threads": THREADS[backend]}
    spaces = trial.observation, trial.action
    try:
        members = [group.learner(backend, trial.algorithm, *spaces, seed=seed, **how) for seed in TOGETHER]
    except UsageError as refusal:
        name = trial.algorithm.name()
        if name not in str(refusal):
            raise AssertionError(f"the refusal does not name {name}: {refusal}") from refusal
        return
    alone = [_learner(trial, backend, seed) for seed in TOGETHER]
    given = trial.batches(LESSONS * len(seeds))

    def learn(learner: Learner, seed: int) -> dict[str, np.ndarray]:
        results: dict[str, np.ndarray] = {}
        for number, batch in enumerate(given[seed :: len(seeds)], 1):
            metrics = learner.update(batch, (number - 1) / LESSONS)
            results |= {f"{name}, update {number}": np.array(value) for name, value in _metrics(metrics).items()}
            if metrics.priority is not None:
                results[f"priorities, update {number}"] = on_host(metrics.priority)
            if not (learner.on_policy or learner.recurrent):
                results[f"actions after update {number}"] = learner.act(batch.obs, None)
        return results

    results: dict[int, dict[str, np.ndarray]] = {}
    raised = group.run([lambda seed=seed: results.update({seed: learn(members[seed], seed)}) for seed in seeds])
    for error in raised:
        if error is not None:
            raise AssertionError(f"{about}: {error}") from error
    for seed in seeds:
        by_itself = learn(alone[seed], seed)
        assert results[seed].keys() == by_itself.keys()
        for name, value in results[seed].items():
            _near(value, by_itself[name], 1e-3, f"{about}, seed {TOGETHER[seed]}, {name}")
        _close([members[seed], alone[seed]], 1e-3, f"{about}, seed {TOGETHER[seed]}")


def compare_acting(trial: Trial, backends: tuple[Backend, ...] = BACKENDS) -> None:
    """Assert that NumPy and each backend compute nearly equal actions. Do nothing if a layer has no NumPy version."""
    learner = _learner(trial, backends[0])
    if not in_numpy(trial.algorithm, learner.specs):
        return
    parameters = _moved(learner)
    ours = _acted(trial, NumpyPolicy(trial.algorithm, learner.specs), parameters)
    for backend in backends:
        other = _learner(trial, backend)
        vars(other)["call_with_carry"] = other._act  # act in the framework, also if the learner would choose NumPy
        theirs = _acted(trial, other, parameters)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            _near(value, theirs[name], 1e-5, f"{trial}, NumPy and {backend}, {name}")


def _moved(learner: Learner) -> Parameters:
    """Return the learner's parameters and statistics plus noise, because initial zeros and ones hide errors."""
    random, found = np.random.default_rng(0), learner.parameters()
    for name, values in found.items():
        statistics = learner.specs[learner.targets.get(name, name)].statistics
        for key, value in values.items():
            other = value + random.normal(0.0, 0.3, value.shape)
            values[key] = np.asarray(np.abs(other) if key in statistics else other, np.float32)
    return found


def _acted(trial: Trial, actor: Policy, parameters: Parameters) -> dict[str, np.ndarray]:
    """Return the experience of a few steps in three environments, and each step's actions for evaluations."""
    actor.load_parameters(parameters)
    found: dict[str, np.ndarray] = {}
    with closing(environments.make(trial.environment, num_envs=3)) as stepper:
        stepper.reset(0)
        normalizer = Normalizer(trial.observation, *trial.algorithm.observation_scaling())
        collector = Collector(trial.algorithm, stepper, actor, normalizer, seed=0)
        policy = EvaluationPolicy(actor, normalizer, stepper.action_space, seed=0)
        for step in range(ACTED):
            found[f"best action {step}"] = policy(stepper.obs, stepper.starts)
            experience, _ = collector.collect(10_000 + step, 20_000)
            found |= flat(experience._asdict(), f"step {step}")
    return found


def _close(pair: Sequence[Learner], tolerance: float, about: str) -> None:
    ours, theirs = (flat(learner.parameters()) for learner in pair)
    assert ours.keys() == theirs.keys(), f"{about}: parameters {sorted(ours.keys() ^ theirs.keys())} are in one only"
    for name, value in ours.items():
        _near(value, theirs[name], tolerance, f"{about}, {name}")


def _near(ours: np.ndarray, theirs: np.ndarray, tolerance: float, about: str) -> None:
    """Assert that all elements are close, relative to the largest element.

    The tolerance is not relative to each element, because Adam's steps do not shrink with the element.
    """
    assert ours.shape == theirs.shape, f"{about}: shapes {ours.shape} and {theirs.shape}"
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    scale = max(1e-3, float(np.abs(ours).max())) if ours.size else 1.0
    worst = float(np.abs(ours - theirs).max()) / scale if ours.size else 0.0
    assert worst <= tolerance, f"{about}: they differ by {worst:.1e} of the largest, more than {tolerance:.0e}"


def _outcome(
    trial: Trial, backend: Backend, steps: int, stop: int | None = None, **options: Any
) -> dict[str, np.ndarray]:
    """Return the state at a run's end. With `stop`, the run is stopped at this step and resumed."""
    options["steps"] = steps
    with TemporaryDirectory() as folder:
        if stop is not None:
            with closing(trial.trainer(backend, Path(folder), **options)) as first:
                first.run([lambda trainer: trainer.stop() if trainer.step >= stop else None])
        with closing(trial.trainer(backend, Path(folder), **options)) as trainer:
            if stop is not None:
                trainer.resume(trainer.checkpoints.store.load_latest())
                assert trainer.stepper.resumed_exactly, "the random environment was not resumed exactly"
            trainer.run()
            state = trainer.checkpoints.state_dict(trainer.step, trainer.seconds)
            line = trainer.log.last_line.items()
            reported = {name: value for name, value in line if value is not None and not name.startswith("time/")}
            for apart in APART:
                state.pop(apart)
            return flat(state | {"reported": reported})


def flat(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of nested dicts in one dict, with their paths as keys."""
    if not isinstance(tree, dict):
        return {prefix: np.asarray(tree)}
    return {name: value for key, part in tree.items() for name, value in flat(part, f"{prefix}/{key}").items()}


def _metrics(metrics: learners.Metrics) -> dict[str, float]:
    values = on_host(metrics.values).astype(np.float64)
    return dict(zip(metrics.names, values.tolist(), strict=True))
