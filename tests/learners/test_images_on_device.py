"""Images that lie on the device and are gathered there: to the bit what a batch that brings them gives.

There is no GPU here: the processor is made to do it. What only CUDA refuses is found as in `test_cuda_graphs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from test_cuda_graphs import PROCESSOR, ProcessorTape, without_values
from test_gpu import found

from duetto import learners, memory
from duetto.algorithms import DQN, PPO, R2D2
from duetto.algorithms.base import Algorithm
from duetto.environments.chance import Chance
from duetto.environments.engines import Engine
from duetto.functional.randomness import generator
from duetto.functional.trees import leaves
from duetto.learners import twins
from duetto.learners.base import on_host
from duetto.learners.jax import JaxLearner
from duetto.learners.torch_recording import Recorder
from duetto.learners.torch_twins import TorchTwins
from duetto.learners.twins import ON_DEVICE, Rows, Twins
from duetto.networks.pictures import Picked
from duetto.networks.spaces import Box, Dict, Discrete, Space
from duetto.testing.conformance import _flat
from duetto.testing.trials import OBSERVATIONS, Trial, closed, small, temporary

BACKENDS = ("torch", "jax")
STEPS, STOP, FRAMES = 96, 53, 3  # the rings of 60 rows go round
IMAGE, CHOICE = OBSERVATIONS["image"], Discrete(3)
SEEN = Dict((("camera", IMAGE), ("where", Box((2,), "float32", (-9.0,) * 2, (9.0,) * 2))))
Outcome = dict[str, np.ndarray]


class Stacking(Chance):
    """Images of chance, each a stack of three frames."""

    _frames = np.zeros((FRAMES, 7, 7), np.uint8)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"frames": self._frames}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._frames = np.array(state["frames"])

    def _draw(self, space: Space) -> np.ndarray:
        self._frames = np.concatenate([self._frames[1:], super()._draw(Box((1, 7, 7), "uint8", (0,), (255,)))])
        return self._frames.copy()


@dataclass(frozen=True)
class StackingTrial(Trial):
    def environment(self) -> Chance:
        return Stacking(self.observation, self.action)


def trial(kind: type[Algorithm] = DQN, observation: Space = IMAGE, **options: Any) -> Trial:
    return Trial(small(kind, **options), observation, CHOICE)


def sequences(**options: Any) -> Trial:
    own = trial(R2D2, **options)
    return StackingTrial(own.algorithm, own.observation, own.action)


TRIALS: dict[str, Callable[[], Trial]] = {
    "uniform": lambda: trial(n_step=3, train_every=1, target_period=1),
    "prioritised": lambda: trial(observation=SEEN, prioritized=True, train_every=2, target_period=1),
    "sequences": lambda: sequences(target_period=1),
}


@pytest.fixture(autouse=True)
def stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines say that their images are; `Stacking`'s are, and only a memory of sequences heeds it."""
    monkeypatch.setattr(Engine, "stacked", FRAMES)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What learners' work is given in place of batches; before it, every twin is compared with its table."""
    found: list[Any] = []
    named = Twins.named

    def noted(self: Any, batch: Any) -> Any:
        found.append(named(self, batch))
        for name, table in self._tables.items():
            twin = self.arrays[name]
            np.testing.assert_array_equal(on_host(twin), table.array)
        return found[-1]

    monkeypatch.setattr(Twins, "named", noted)
    return found


def outcome(
    some: Trial,
    backend: Any,
    monkeypatch: pytest.MonkeyPatch,
    on: bool,
    stop: int | None = None,
    ready: Callable[[Any], Any] = lambda session: None,
    said: list[str] | None = None,
    **options: Any,
) -> Outcome:
    """All that the next steps of a run depend on, at its end; stopped and gone on with once where asked for."""
    monkeypatch.setenv(ON_DEVICE, str(int(on)))
    options = {"steps": STEPS} | options
    with temporary() as folder:
        if stop is not None:
            with closed(some.session(backend, folder, **options)) as first:
                ready(first)
                first.run([lambda session: session.stop() if session.step >= stop else None])
        with closed(some.session(backend, folder, **options)) as session:
            ready(session)
            if stop is not None:
                session.checkpoints.load(session.checkpoints.store.load_latest())
            session.run()
            if said is not None:
                said += session.notices
            state = session.checkpoints.state_dict()
            return _flat({name: state[name] for name in ("learner", "memory", "collector")})


def assert_same(one: Outcome, other: Outcome) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


# ------------------------------------------------------------------------------------------------ runs
@pytest.mark.parametrize("name", ["uniform", "sequences"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_is_the_one_whose_batches_bring_images(
    backend: str, name: str, given: list[Any], monkeypatch: pytest.MonkeyPatch
):
    """In one part and in two, while the rings go round; in JAX four updates of transitions are made in one program."""
    some, programs = TRIALS[name](), list[int]()
    made = JaxLearner._made

    def noted(self: JaxLearner, updates: list[Any]) -> Any:
        programs.append(len(updates))
        return made(self, updates)

    monkeypatch.setattr(JaxLearner, "_made", noted)
    options: dict[str, Any] = {"num_envs": 4 if name == "uniform" else 2}
    plain = outcome(some, backend, monkeypatch, on=False, **options)
    assert not given
    stop = STOP if (backend, name) == ("jax", "uniform") else None  # in PyTorch both
    assert_same(outcome(some, backend, monkeypatch, on=True, stop=stop, **options), plain)
    assert len(given) == int(plain["/learner/updates"]) > 10
    assert set(programs) == ({4} if (backend, name) == ("jax", "uniform") else set())
    images = [leaf for batch in given for leaf in leaves(batch) if leaf.dtype == np.uint8]
    assert not images
    assert (plain.get("/memory/written", plain.get("/memory/episodes/written")) > 60 // options["num_envs"]).all()
    if backend == "torch":
        assert_same(outcome(some, backend, monkeypatch, on=True, stop=STOP, **options), plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_little_travels(backend: str, monkeypatch: pytest.MonkeyPatch):
    """With priorities, as CUDA graphs play an update back, and as one buffer in JAX: the same bits, of fewer bytes."""
    learned: list[Any] = []

    def ready(session: Any) -> None:
        learner = session.learner
        learned.append(learner)
        if backend == "torch":
            learner._recorder = Recorder(PROCESSOR, learner._changing, ProcessorTape())
        else:
            learner.on_gpu = True

    def size(learner: Any) -> int:
        if backend == "jax":
            return max(one.size for one in learner._packings.values())
        recorded = learner._recorder._recorded
        return max(one.arrivals._packing.size for (name, _), one in recorded.items() if name[0] == "update")

    some = TRIALS["prioritised"]()
    plain, own = (outcome(some, backend, monkeypatch, on, ready=ready) for on in (False, True))
    assert_same(own, plain)
    assert (plain["/memory/written"] > 60 // 2).all()
    images = 2 * 8 * 3 * 7 * 7  # of eight transitions, before and after
    assert size(learned[0]) > images
    assert size(learned[1]) <= size(learned[0]) - images + 2 * 64  # 32 bytes of rows each, at multiples of 64


def test_the_frames_of_sequences_are_stacked_there(given: list[Any], monkeypatch: pytest.MonkeyPatch):
    outcome(sequences(), "torch", monkeypatch, on=True, steps=60)
    (index,) = given[-1].obs.obs.of.values()
    assert (index.shape, index.dtype) == ((8, 2 + 4 + 1, FRAMES), np.int32)


# ------------------------------------------------------------------------------------------------ on CUDA
def pieces_of_a_run(observation: Space = IMAGE) -> memory.Replay:
    """A memory of 40 transitions that names its images."""
    some = trial(observation=observation)
    made = memory.build(some.algorithm.memory(), observation, CHOICE, 1, generator(0, "memory"))
    assert isinstance(made, memory.Replay)
    assert made.image_tables()
    random = np.random.default_rng(0)
    for _ in range(40):
        made.add(step(random))
    return made


def step(random: np.random.Generator) -> memory.Experience:
    obs, next_obs = (random.integers(256, size=(1, *IMAGE.shape), dtype=np.uint8) for _ in range(2))
    flag, number = np.zeros(1, bool), random.normal(size=1).astype(np.float32)
    return memory.Experience(np.zeros(1, np.int64), obs, random.integers(3, size=1), number, next_obs, flag, flag)


def test_nothing_that_cuda_would_not_record(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ON_DEVICE, "1")
    learner, replay = without_values(trial(), monkeypatch), pieces_of_a_run()
    assert learner.twins.keep(replay.image_tables()) == []
    assert {tensor.device.type for tensor in learner.twins.arrays.values()} == {"meta"}
    for _ in range(3):
        learner.update(replay.sample().batch)
    assert learner._recorder._tape.recorded > 0


def test_what_is_recorded_reads_the_same_memory_each_time(monkeypatch: pytest.MonkeyPatch):
    """Whatever is brought there, a twin stays at its address."""
    monkeypatch.setenv(ON_DEVICE, "1")
    learner: Any = learners.build("torch", trial().algorithm, IMAGE, CHOICE, threads=1)
    replay, random = pieces_of_a_run(), np.random.default_rng(1)
    learner.twins.keep(replay.image_tables())
    places = [tensor.data_ptr() for tensor in learner.twins.arrays.values()]
    for _ in range(3):
        learner.update(replay.sample().batch)
        replay.add(step(random))
    assert places == [tensor.data_ptr() for tensor in learner.twins.arrays.values()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_on_a_gpu(backend: Any, given: list[Any], monkeypatch: pytest.MonkeyPatch):
    """Near the run whose batches bring images: sums may come in another order there. Twins are compared bit for bit."""
    if not found(backend):
        pytest.skip(f"{backend} sees no CUDA device here: nothing was tried on one")
    for make in TRIALS.values():
        plain, own = (outcome(make(), backend, monkeypatch, on, steps=40, device="cuda") for on in (False, True))
        for name, value in plain.items():
            if name.startswith("/learner/parameters"):
                np.testing.assert_allclose(own[name], value, rtol=1e-2, atol=1e-4, err_msg=name)
    assert given


# ------------------------------------------------------------------------------------------------ what is brought
def test_a_row_is_brought_once(monkeypatch: pytest.MonkeyPatch):
    """At first all that was written; then what is new, however often it was written; and of much a piece at a time."""
    monkeypatch.setenv(ON_DEVICE, "1")
    monkeypatch.setattr(twins, "MOST", 33 * 3 * 7 * 7)
    learner = learners.build("torch", trial().algorithm, IMAGE, CHOICE, threads=1)
    replay, random, brought = pieces_of_a_run(), np.random.default_rng(1), list[tuple[str, list[int]]]()
    assert isinstance(learner.twins, TorchTwins)
    learner.twins.keep(replay.image_tables())
    monkeypatch.setattr(learner.twins, "bring", lambda name, rows, values: brought.append((name, rows.tolist())))

    def news() -> list[list[int]]:
        brought.clear()
        assert learner.twins is not None
        learner.twins.named(replay.sample().batch)
        assert [rows for name, rows in brought if name == "images/obs"] == [
            rows for name, rows in brought if name == "images/next_obs"
        ]
        return [rows for name, rows in brought if name == "images/obs"]

    assert news() == [list(range(32)), list(range(32, 40))]  # 32: a power of two
    assert news() == []
    for _ in range(3):
        replay.add(step(random))
    assert news() == [[40, 41, 42]]
    for _ in range(60 + 2):
        replay.add(step(random))
    assert [row for rows in news() for row in rows] == list(range(60))


def test_a_batch_is_learned_from_before_anything_is_added(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ON_DEVICE, "1")
    learner, replay = learners.build("torch", trial().algorithm, IMAGE, CHOICE, threads=1), pieces_of_a_run()
    assert learner.twins is not None
    learner.twins.keep(replay.image_tables())
    batch = replay.sample().batch
    learner.update(batch)
    replay.add(step(np.random.default_rng(1)))
    with pytest.raises(RuntimeError, match="learn from a batch before adding"):
        learner.update(batch)


def test_images_of_a_memory_without_twins_are_brought(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ON_DEVICE, "1")
    learner = learners.build("torch", trial().algorithm, IMAGE, CHOICE, threads=1)
    known, other = pieces_of_a_run(), pieces_of_a_run()
    assert learner.twins is not None
    learner.twins.keep(known.image_tables())
    batch = other.sample().batch
    assert isinstance(batch.obs, Picked)
    found = learner.twins.named(batch)
    np.testing.assert_array_equal(found.obs, np.asarray(batch.obs))
    assert isinstance(learner.twins.named(known.sample().batch).obs, Rows)


# ------------------------------------------------------------------------------------------------ where there are none
def test_too_many_for_the_device(given: list[Any], monkeypatch: pytest.MonkeyPatch):
    """A sentence, once, though the memory is made twice where there are masks; the run is the plain one."""
    some = replace(trial(), masked=True)
    needed = 2 * 60 * 3 * 7 * 7
    plain = outcome(some, "torch", monkeypatch, on=False, steps=40)
    monkeypatch.setattr(TorchTwins, "room", lambda self: 2 * needed)
    assert_same(outcome(some, "torch", monkeypatch, on=True, steps=40), plain)
    assert isinstance(given[-1].obs[""], Rows)
    monkeypatch.setattr(TorchTwins, "room", lambda self: 2 * needed - 1)
    said: list[str] = []
    assert_same(outcome(some, "torch", monkeypatch, on=True, steps=40, said=said), plain)
    assert isinstance(given[-1].obs[""], np.ndarray)
    (sentence,) = said
    assert "are not kept on the device" in sentence


@pytest.mark.parametrize("backend", BACKENDS)
def test_asked_for_by_the_environment_or_the_device(backend: Any, monkeypatch: pytest.MonkeyPatch):
    def kept() -> bool:
        return learners.build(backend, trial().algorithm, IMAGE, CHOICE, threads=1).twins is not None

    assert not kept()
    monkeypatch.setenv(ON_DEVICE, "1")
    assert kept()
    monkeypatch.setenv(ON_DEVICE, "0")
    assert not kept()
    assert (twins.wanted(True), twins.wanted(False)) == (False, False)
    monkeypatch.delenv(ON_DEVICE)
    assert (twins.wanted(True), twins.wanted(False)) == (True, False)


def test_who_learns_beside_the_run_is_given_images(monkeypatch: pytest.MonkeyPatch):
    """A thread may not have come to an update when the next rows are written."""
    monkeypatch.setenv(ON_DEVICE, "1")
    learner = learners.build("torch", trial().algorithm, IMAGE, CHOICE, threads=1)
    learner.learn_beside()
    assert learner.twins is None
    learner.close()


def test_other_memories_bring_their_images(given: list[Any], monkeypatch: pytest.MonkeyPatch):
    """Compressed ones, and rollouts."""
    outcome(sequences(compress_images=True), "torch", monkeypatch, on=True, steps=60)
    assert given[-1].obs.obs.dtype == np.uint8
    outcome(trial(PPO), "torch", monkeypatch, on=True, steps=40)
    assert given[-1].obs.dtype == np.uint8
