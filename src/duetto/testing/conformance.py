"""Checks that must hold for every algorithm, whatever it computes. Each takes the class, and raises AssertionError.

parity       both frameworks start from the same numbers and compute the same, on the simplest spaces that it takes
spaces       the same on every other kind of space
memory       the same with recurrent layers, where it has them
acting       NumPy acts as both frameworks do, wherever it can, and with recurrent layers
state        a learner that was saved goes on bit for bit, on each framework
resuming     a run that was stopped and resumed ends as the one that was not, and a repeated one as the first
behind       the same when it acts one step behind; algorithms that learn from rollouts refuse that in a sentence
precision    bfloat16 gives finite numbers near float32's
masks        with masks of choices no forbidden action is taken, both frameworks agree, and a run is resumed exactly
together     seeds side by side learn and act as each alone, with masks and joint actions, too; or a sentence refuses
options      every option changes what a run computes, and none that does is said to have no effect
idle         options that are said to have no effect beside others (`algorithms.idle`) have none
refusals     spaces that it does not take are refused in a sentence with its name
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from duetto import environments, learners
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.idle import WHILE, idle
from duetto.errors import UsageError
from duetto.learners import Backend, Learner, acting
from duetto.learners.base import on_host
from duetto.learners.choice import installed
from duetto.learners.parameters import Parameters
from duetto.learners.voices import Choir
from duetto.networks import masks
from duetto.networks.spaces import Dict
from duetto.testing.alternatives import UNTRIED, alternative, is_custom
from duetto.testing.trials import ACTIONS, OBSERVATIONS, ONE, Trial, closed, demonstrated, small, supported, temporary
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer
from duetto.training.policy import Policy
from duetto.training.turns import Turns

BACKENDS: tuple[Backend, ...] = ("torch", "jax")
UPDATES = 12
ACTED = 6  # steps
APART = ("log", "evaluations", "session", "config", "modules")  # of a state: windows, clocks, what the run is made from
SOON = 24  # steps
TOGETHER, LESSONS = (0, 5), 3  # seeds, and updates of each


def check_parity(kind: type[Algorithm]) -> None:
    """Check that both frameworks have equal parameters at the start, and on equal batches equal metrics, parameters,
    priorities and actions.
    """
    with _trials(kind) as (trial, *_):
        _compare(trial)


def check_spaces(kind: type[Algorithm]) -> None:
    """Check parity on the other kinds of spaces: vectors, parts and images, numbers and choices."""
    with _trials(kind) as (_, *trials):
        for trial in trials:
            _compare(trial)


def check_memory(kind: type[Algorithm]) -> None:
    """Check parity with recurrent layers of both kinds."""
    if "recurrent" not in kind.options():
        return
    for cell in ("lstm", "gru"):
        with _trials(kind, recurrent=cell) as (trial, *_):
            _compare(trial)


def check_acting(kind: type[Algorithm]) -> None:
    """Check that NumPy and PyTorch give equal experience and best guesses, and on the simplest spaces JAX, too."""
    for cell in ("none", "lstm", "gru") if "recurrent" in kind.options() else ("",):
        with _trials(kind, **({"recurrent": cell} if cell else {})) as trials:
            for number, trial in enumerate(trials):
                compare_acting(trial, BACKENDS if number == 0 else BACKENDS[:1])


def check_state(kind: type[Algorithm]) -> None:
    """Check that a learner with a loaded state goes on as the one it was saved from, to the bit."""
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
            for name, value in _flat(one.state_dict()).items():
                again = _flat(other.state_dict())[name]
                assert np.array_equal(value, again), (
                    f"{kind.name()}, {backend}: {name} is another after loading a state"
                )


def check_resuming(kind: type[Algorithm], backend: Backend = "torch", device: str = "cpu") -> None:
    """Check that a run of 48 steps ends the same when it is repeated, and when it is stopped and resumed."""
    with _trials(kind, **({"recurrent": "lstm"} if "recurrent" in kind.options() else {})) as (trial, *_):
        _compare_runs(trial, backend, device=device)


def check_behind(kind: type[Algorithm], backend: Backend = "torch") -> None:
    """Check that a run that acts one step behind ends the same when it is repeated, and when it is resumed; or, if it
    learns from rollouts, that it is refused.
    """
    with _trials(kind, **({"recurrent": "lstm"} if "recurrent" in kind.options() else {})) as (trial, *_):
        if trial.algorithm.memory().on_policy:
            _expect_refusal(trial, backend, f"{kind.name()} learns from rollouts, and acts behind", act_behind=True)
            return
        _compare_runs(trial, backend, act_behind=True)


def _compare_runs(trial: Trial, backend: Backend, **how: Any) -> None:
    """Compare a run of 48 steps with one that is repeated, and with one that is stopped and resumed."""
    name = trial.algorithm.name()
    whole, again = (_outcome(trial, backend, 48, **how) for _ in range(2))
    parts = _outcome(trial, backend, 48, stop=29, **how)
    for key, value in whole.items():
        assert np.array_equal(value, again[key]), f"{name}: {key} is another in a run that was repeated"
        assert np.array_equal(value, parts[key]), f"{name}: {key} is another in a run that was resumed"


def _expect_refusal(trial: Trial, backend: Backend, otherwise: str, **how: Any) -> None:
    name = trial.algorithm.name()
    try:
        _outcome(trial, backend, 1, **how)
    except UsageError as refusal:
        sentence = str(refusal)
    else:
        raise AssertionError(otherwise)
    assert name in sentence, f"the refusal does not name {name}: {sentence}"


def check_precision(kind: type[Algorithm]) -> None:
    """Check that the metrics of one update in bfloat16 are near those of float32."""
    with _trials(kind) as (trial, *_):
        batch = trial.batches(1)[0]
        for backend in BACKENDS:
            exact, rough = (_metrics(_learner(trial, backend, precision=p).update(batch)) for p in ("float32", "bf16"))
            for name, value in exact.items():
                near = abs(rough[name] - value) <= 0.1 * (1 + abs(value))
                assert near, f"{kind.name()}, {backend}: {name} is {rough[name]} in bfloat16 and {value} in float32"


def check_masks(kind: type[Algorithm], backend: Backend = "torch") -> None:
    """Check masks of choices: parity on batches; a run, repeated and resumed, in which a forbidden action raises.

    Algorithms that learn from demonstrations, which have no masks, refuse such an environment in a sentence.
    """
    with _trials(kind) as trials:
        masked = [dataclasses.replace(trial, masked=True) for trial in trials if masks.choices(trial.action)][:1]
        if masked and "demonstrations" in kind.options():
            _expect_refusal(masked[0], backend, f"{kind.name()} learns from demonstrations, and refuses no masks")
            return
        for trial in masked:
            _compare(trial)
            recurrent = {"recurrent": "lstm"} if "recurrent" in kind.options() else {}
            trial = dataclasses.replace(trial, algorithm=trial.algorithm.with_options(**recurrent))
            _compare_runs(trial, backend)


def check_together(kind: type[Algorithm], backend: Backend = "torch") -> None:
    """Compare two seeds computed together with each alone: on the simplest spaces, with masks, and with joint actions.

    Algorithms whose networks cannot be computed together, such as recurrent ones, refuse it in a sentence.
    """
    with _trials(kind) as trials:
        learns_from_masks = "demonstrations" not in kind.options()
        masked = [dataclasses.replace(trial, masked=True) for trial in trials if masks.choices(trial.action)]
        joint = [trial for trial in trials if isinstance(trial.action, Dict)]
        for trial in (trials[0], *(masked[:1] if learns_from_masks else ()), *joint[:1]):
            _compare_together(trial, backend)


def check_device(kind: type[Algorithm], backend: Backend, device: str) -> None:
    """Check another device: parity with the processor, and a run there that is repeated, and resumed.

    It is not in `CHECKS`, as few machines have a GPU.
    """
    with _trials(kind) as (trial, *_):
        pair = [_learner(trial, backend, device=one) for one in ("cpu", device)]
        _compare_pair(trial, pair, ("the processor", device))
    check_resuming(kind, backend, device=device)


def check_options(kind: type[Algorithm]) -> None:
    """Check that another value of each option changes the numbers; `Algorithm.alternatives` names it if not obvious.

    With options that a class of your own adds, both frameworks must compute the same, too; Duetto's tests compare its
    own.
    """
    unread: list[str] = []
    with _trials(kind) as (trial, *_):
        base: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        for field in dataclasses.fields(kind):
            if field.name in UNTRIED or is_custom(kind, field.name):
                continue
            if (other := alternative(trial.algorithm, field.name)) is None:
                continue
            value, others = other
            before = dataclasses.replace(trial, algorithm=trial.algorithm.with_options(**others))
            after = dataclasses.replace(before, algorithm=before.algorithm.with_options(**{field.name: value}))
            if field.name in inspect.get_annotations(kind) and kind not in ALGORITHMS.values():
                _compare(after)
            for steps in (SOON, 48):  # most show soon
                key = (repr(sorted(others.items())), steps)
                if key not in base:
                    base[key] = _outcome(before, "torch", steps)
                if not _equal(base[key], _outcome(after, "torch", steps)):
                    why = idle(before.algorithm).get(field.name, "")
                    assert not why, f"{kind.name()}: {field.name} counts, and is said to have no effect: {why}"
                    break
            else:
                unread.append(f"{field.name} {value!r}" + (f" (with {others})" if others else ""))
        assert not unread, f"{kind.name()}: nothing changes with {', '.join(unread)}; is it read?"


def check_idle(kind: type[Algorithm]) -> None:
    """Check, for each reason, that changing all options said to have no effect leaves a run the same, to the bit."""
    with _trials(kind) as (trial, *_):
        for those in (those for those, _ in WHILE if those.keys() <= set(kind.options())):
            try:
                before = dataclasses.replace(trial, algorithm=trial.algorithm.with_options(**those))
                expected = _outcome(before, "torch", SOON)
            except UsageError:  # one of its options has no such value, or not beside the others
                continue
            others = {name: alternative(before.algorithm, name) for name in idle(before.algorithm)}
            changed = {name: other[0] for name, other in others.items() if other}
            after = dataclasses.replace(before, algorithm=before.algorithm.with_options(**changed))
            assert _equal(expected, _outcome(after, "torch", SOON)), (
                f"{kind.name()}: one of {', '.join(changed)} is said to have no effect beside {those}, and has one"
            )


def check_refusals(kind: type[Algorithm]) -> None:
    """Check that Dict action spaces are refused in a sentence with the algorithm's name, or that it can act in them."""
    algorithm = small(kind)
    with _trials(kind) as trials:
        for trial in [trial for trial in trials if isinstance(trial.action, Dict)][:1]:
            try:
                with temporary() as folder, closed(trial.session("torch", folder)) as session:
                    session.run()
            except Exception as error:
                sentence = f"{kind.name()} takes actions of {trial.action}: check_spaces refuses nothing"
                raise AssertionError(f"{sentence}, and it fails with them") from error
            return
    _, observation, action = supported(algorithm)[0]
    strange = Dict((("a", action),)) if not isinstance(action, Dict) else action
    try:
        algorithm.check_spaces(observation, strange, "Somewhere-v0")
    except UsageError as refusal:
        sentence = str(refusal)
        assert kind.name() in sentence, f"the refusal does not name {kind.name()}: {sentence}"
        assert "Somewhere-v0" in sentence, f"the refusal does not name the environment: {sentence}"
    else:
        raise AssertionError(f"{kind.name()} takes actions of {strange}: check_spaces refuses nothing")


CHECKS: dict[str, Callable[[type[Algorithm]], None]] = {
    "refusals": check_refusals,
    "parity": check_parity,
    "spaces": check_spaces,
    "memory": check_memory,
    "acting": check_acting,
    "state": check_state,
    "resuming": check_resuming,
    "behind": check_behind,
    "precision": check_precision,
    "masks": check_masks,
    "together": check_together,
    "options": check_options,
    "idle": check_idle,
}


# ------------------------------------------------------------------------------------------------ what they share
@contextlib.contextmanager
def _trials(kind: type[Algorithm], **options: Any) -> Iterator[list[Trial]]:
    """Yield a trial for every pair of spaces that the algorithm takes, the simplest first. UsageError if none."""
    with temporary() as parent:
        made = []
        if not (taken := supported(small(kind))):
            raise UsageError(
                f"{kind.name()} cannot be checked: its check_spaces refuses all spaces that one is tried on, such "
                f"as observations {OBSERVATIONS['vector']} with actions {ACTIONS['numbers']} or {ACTIONS['choice']}."
            )
        for name, observation, action in taken:
            folder = None
            if "demonstrations" in kind.options():
                (parent / name).mkdir()
                folder = demonstrated(parent / name, observation, action)
            made.append(Trial(small(kind, folder, **options), observation, action))
        yield made


def _learner(trial: Trial, backend: Backend, seed: int = 0, **options: Any) -> Learner:
    spaces = trial.observation, trial.action
    return learners.build(backend, trial.algorithm, *spaces, seed=seed, threads=ONE[backend], **options)


def _compare(trial: Trial) -> None:
    _compare_pair(trial, [_learner(trial, backend) for backend in BACKENDS])


def _compare_pair(trial: Trial, pair: Sequence[Learner], who: tuple[str, str] = ("PyTorch", "JAX")) -> None:
    about = f"{trial.algorithm.name()} on {trial.observation} and {trial.action}"
    _close(pair, 0.0, f"{about}, at the start", who)
    batches = trial.batches(UPDATES)
    for number, batch in enumerate(batches, 1):
        metrics = [learner.update(batch, (number - 1) / UPDATES) for learner in pair]
        assert metrics[0].names == metrics[1].names, f"{about}: metrics {metrics[0].names} and {metrics[1].names}"
        tolerance = 1e-4 if number <= 2 else 1e-3  # Adam divides by a gradient's own size: a tiny one's rounding shows
        ours, theirs = (on_host(one.values) for one in metrics)
        _near(ours, theirs, 10 * tolerance, f"{about}, update {number}, metrics {metrics[0].names}", who)
        if metrics[0].priority is not None:
            ours, theirs = (on_host(one.priority) for one in metrics)
            _near(ours, theirs, tolerance, f"{about}, update {number}, priorities", who)
        _close(pair, tolerance, f"{about}, update {number}", who)
    if pair[0].on_policy or pair[0].recurrent:
        return  # they act on windows, or on the host: looked at where they learn
    noise, _ = trial.algorithm.explorer().draw(
        np.random.default_rng(0), np.zeros((8, trial.action.size), np.float32), 0, 100, trial.action
    )
    for drawn in (None, noise):
        ours, theirs = (learner.act(batches[0].obs, drawn) for learner in pair)
        _near(ours, theirs, 1e-3, f"{about}, actions", who)


def _compare_together(trial: Trial, backend: Backend) -> None:
    about, sentence = f"{trial.algorithm.name()} on {trial.observation} and {trial.action}, two seeds", ""
    choir, seeds, who = Choir(TOGETHER), range(len(TOGETHER)), ("those side by side", "those alone")
    how: dict[str, Any] = {"device": "cpu", "precision": "float32", "threads": ONE[backend]}
    spaces = trial.observation, trial.action
    try:
        voices = [choir.voice(backend, trial.algorithm, *spaces, seed=seed, **how) for seed in TOGETHER]
    except UsageError as refusal:
        voices, sentence = [], str(refusal)
    if not voices:
        assert trial.algorithm.name() in sentence, f"the refusal does not name {trial.algorithm.name()}: {sentence}"
        return
    alone = [_learner(trial, backend, seed) for seed in TOGETHER]
    given = trial.batches(LESSONS * len(seeds))

    def learn(learner: Learner, seed: int) -> dict[str, np.ndarray]:
        told: dict[str, np.ndarray] = {}
        for number, batch in enumerate(given[seed :: len(seeds)], 1):
            metrics = learner.update(batch, (number - 1) / LESSONS)
            told |= {f"{name}, update {number}": np.array(value) for name, value in _metrics(metrics).items()}
            if metrics.priority is not None:
                told[f"priorities, update {number}"] = on_host(metrics.priority)
            if not (learner.on_policy or learner.recurrent):  # they act on windows, or on the host
                told[f"actions after update {number}"] = learner.act(batch.obs, None)
        return told

    told: dict[int, dict[str, np.ndarray]] = {}
    turns = Turns(choir.answer)
    choir.ask = turns.ask
    raised = turns.run([lambda seed=seed: told.update({seed: learn(voices[seed], seed)}) for seed in seeds])
    for error in raised:
        if error is not None:
            raise AssertionError(f"{about}: {error}") from error
    for seed in seeds:
        by_itself = learn(alone[seed], seed)
        assert told[seed].keys() == by_itself.keys()
        for name, value in told[seed].items():
            _near(value, by_itself[name], 1e-3, f"{about}, seed {TOGETHER[seed]}, {name}", who)
        _close([voices[seed], alone[seed]], 1e-3, f"{about}, seed {TOGETHER[seed]}", who)


def compare_acting(trial: Trial, backends: tuple[Backend, ...] = BACKENDS) -> None:
    """Raise AssertionError if NumPy, if it can act at all, collects or evaluates otherwise than a backend."""
    learner = _learner(trial, backends[0])
    if not acting.in_numpy(trial.algorithm, learner.specs):
        return
    parameters = _moved(learner)
    ours = _acted(trial, acting.HostActing(trial.algorithm, learner.specs), parameters)
    for backend in backends:
        theirs = _acted(trial, acting.FrameworkActing(_learner(trial, backend)), parameters)
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            about = f"{trial.algorithm.name()} on {trial.observation} and {trial.action}, {name}"
            _near(value, theirs[name], 1e-5, about, ("NumPy", backend))


def _moved(learner: Learner) -> Parameters:
    """The learner's parameters and statistics, all changed at random: zeros and ones at the start hide mistakes."""
    random, found = np.random.default_rng(0), learner.parameters()
    for name, values in found.items():
        statistics = learner.specs[learner.targets.get(name, name)].statistics
        for key, value in values.items():
            other = value + random.normal(0.0, 0.3, value.shape)
            values[key] = np.asarray(np.abs(other) if key in statistics else other, np.float32)
    return found


def _acted(trial: Trial, actor: acting.Parted, parameters: Parameters) -> dict[str, np.ndarray]:
    """The experience of a few steps in three environments, ends of episodes included, and the policy's best guesses."""
    actor.load(parameters)
    found: dict[str, np.ndarray] = {}
    with contextlib.closing(environments.make(trial.environment, num_envs=3)) as stepper:
        stepper.reset(0)
        normalizer = Normalizer(trial.observation, *trial.algorithm.observation_scaling())
        collector = Collector(trial.algorithm, stepper, actor, normalizer, seed=0)
        policy = Policy(actor, normalizer, stepper.action_space, seed=0)
        for step in range(ACTED):
            found[f"best action {step}"] = policy(stepper.obs, stepper.starts)
            experience, _ = collector.collect(10_000 + step, 20_000)
            found |= _flat(experience._asdict(), f"step {step}")
    return found


def _close(pair: Sequence[Learner], tolerance: float, about: str, who: tuple[str, str] = ("PyTorch", "JAX")) -> None:
    ours, theirs = (_flat(learner.parameters()) for learner in pair)
    assert ours.keys() == theirs.keys(), f"{about}: parameters {sorted(ours.keys() ^ theirs.keys())} are in one only"
    for name, value in ours.items():
        _near(value, theirs[name], tolerance, f"{about}, {name}", who)


def _near(
    ours: np.ndarray,
    theirs: np.ndarray,
    tolerance: float,
    about: str,
    who: tuple[str, str] = ("PyTorch", "JAX"),
) -> None:
    """Assert that all elements are near, relative to the largest: Adam's steps do not shrink with the element."""
    assert ours.shape == theirs.shape, f"{about}: shapes {ours.shape} and {theirs.shape}"
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    scale = max(1e-3, float(np.abs(ours).max())) if ours.size else 1.0
    worst = float(np.abs(ours - theirs).max()) / scale if ours.size else 0.0
    assert math.isfinite(worst), f"{about}: not finite"
    assert worst <= tolerance, (
        f"{about}: {' and '.join(who)} differ by {worst:.1e} of the largest, more than {tolerance:.0e}"
    )


def _outcome(
    trial: Trial, backend: Backend, steps: int, stop: int | None = None, **options: Any
) -> dict[str, np.ndarray]:
    """The state at a run's end, everything that its next steps depend on; with `stop` it is resumed there once."""
    options["steps"] = steps
    with temporary() as folder:
        if stop is not None:
            with closed(trial.session(backend, folder, **options)) as first:
                first.run([lambda session: session.stop() if session.step >= stop else None])
        with closed(trial.session(backend, folder, **options)) as session:
            if stop is not None:
                session.checkpoints.load(session.checkpoints.store.load_latest())
                assert session.stepper.resumed_exactly, "the environment of chance did not come back exactly"
            session.run()
            state = session.checkpoints.state_dict()
            line = session.log.last_line.items()  # that of the end
            reported = {name: value for name, value in line if value is not None and not name.startswith("time/")}
            for apart in APART:
                state.pop(apart)
            return _flat(state | {"reported": reported})


def _equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(value, other[name]) for name, value in one.items())


def _flat(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    if not isinstance(tree, dict):
        return {prefix: np.asarray(tree)}
    return {name: value for key, part in tree.items() for name, value in _flat(part, f"{prefix}/{key}").items()}


def _metrics(metrics: learners.Metrics) -> dict[str, float]:
    values = on_host(metrics.values).astype(np.float64)
    return dict(zip(metrics.names, values.tolist(), strict=True))


def both_installed() -> bool:
    """Whether both frameworks are installed."""
    return all(installed(backend) for backend in BACKENDS)
