"""Acting needs no experience; and a run whose experience is damaged can continue without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstrated import CHOICES, CUT, SEQUENCES, recorded
from fake_run import FakeMemory, flip_bit, has_all_rows, reopened, save, segment_names
from line_environment import Line
from small_runs import StopAt, assert_same, checkpoints, small, train

import duetto
from duetto.errors import CheckpointError
from duetto.runs.run import Run
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.manifest import Manifest
from duetto.training.trainer import Trainer


def damage_memory(run: Run) -> str:
    """Harm a segment that both checkpoints of the run need; its name."""
    folder = run.path / "checkpoints"
    first, second = (Manifest.read(path) for path in sorted(folder.glob("step-*")))
    assert first.memory is not None
    assert second.memory is not None
    name = next(one.file.name for one in first.memory.segments if one in second.memory.segments)
    flip_bit(folder / "memory" / name, 500)
    return name


class Watch:
    """What the trainer says at its start, and what its memory holds then and at each step."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        self.trainers: list[Trainer] = []
        self.updates: dict[int, int] = {}
        self.written: dict[int, list[int]] = {}
        self.began_anew = False
        self.memory: dict[str, Any] = {}

    def start(self, trainer: Trainer) -> None:
        self.notices += trainer.notices
        self.trainers.append(trainer)
        self.began_anew = bool(trainer.stepper.starts.all())
        self.memory = trainer.memory.state_dict()
        self(trainer)

    def __call__(self, trainer: Trainer) -> None:
        self.updates[trainer.step] = trainer.learner.updates
        self.written[trainer.step] = trainer.memory.written.tolist()


CONTENTS = {"envs", "items", "schedule"}


def nothing_left(state: dict[str, Any], within: bool = False) -> bool:
    """Whether all that says what a memory holds is 0, or of no length."""
    for name, part in state.items():
        inside = within or name in CONTENTS
        if isinstance(part, dict):
            if not nothing_left(part, inside):
                return False
        elif inside and np.any(part):
            return False
    return True


def go_on(run: Run, **options: Any) -> Watch:
    watch = Watch()
    run.resume(callbacks=[watch], on_start=watch.start, **options)
    return watch


# ---------------------------------------------------------------------------------------------------- acting
def test_acting_does_not_read_the_memory(tmp_path: Path):
    run = train(tmp_path, steps=160)
    whole = [run.evaluate(1, checkpoint).mean_return for checkpoint in ("last", 160, 120, "best")]
    damage_memory(run)
    assert [run.evaluate(1, checkpoint).mean_return for checkpoint in ("last", 160, 120, "best")] == whole
    assert run.notices == []
    for path in (run.path / "checkpoints" / "memory").iterdir():
        path.unlink()
    assert duetto.load(run.path).step == 160


# ---------------------------------------------------------------------------------------------------- refused
def test_the_way_out_is_said_only_where_it_is_the_only_one(tmp_path: Path):
    run = train(tmp_path, steps=160)
    newest = sorted((run.path / "checkpoints" / "memory").iterdir())[-1]
    whole = newest.read_bytes()
    flip_bit(newest, 500)
    loaded = checkpoints(run).load_latest()  # an older checkpoint does not need it
    assert loaded.step == 120
    assert "--without-memory" not in loaded.problems[0]
    newest.write_bytes(whole)
    name = damage_memory(run)
    with pytest.raises(CheckpointError) as failure:
        run.resume()
    lines = str(failure.value).splitlines()
    assert len(lines) == 4
    assert lines[0].endswith("can be used:")
    assert all(f"{name} is damaged" in line for line in lines[1:3])
    assert lines[3] == (
        "Only the experience of the checkpoint at step 160 is damaged. To resume from it with an empty memory: "
        f"duetto resume {run.path} --without-memory"
    )
    (run.path / "checkpoints" / "step-000000000160" / "state.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"experience of the checkpoint at step 120 is damaged.*--without-memory$"
    ):
        run.resume()
    (run.path / "checkpoints" / "step-000000000120" / "manifest.json").unlink()
    with pytest.raises(CheckpointError) as failure:
        run.resume()
    assert "--without-memory" not in str(failure.value)


# ---------------------------------------------------------------------------------------------------- continuing
REPLAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "uniform": ("td3", {"n_step": 3}, {}),
    "prioritized": ("ddpg", {"prioritized": True, "importance_anneal_samples": 50}, {}),
    "sequences": ("r2d2", SEQUENCES | CHOICES, {"environment": "CartPole-v1", "num_envs": 2} | CUT),
    "recurrent": (
        "ddpg",
        SEQUENCES | {"recurrent": "lstm"},
        {"environment": Line, "num_envs": 2, "environment_options": {"length": 30}},
    ),
}


@pytest.mark.parametrize("case", REPLAYS)
def test_it_goes_on_with_an_empty_memory(tmp_path: Path, case: str):
    name, hyperparameters, options = REPLAYS[case]
    run = train(tmp_path, small(name, **hyperparameters), steps=160, **options)
    damage_memory(run)
    before = checkpoints(run).load_latest(memory=False).state
    with pytest.raises(CheckpointError, match="--without-memory"):
        run.resume(steps=240)
    watch = go_on(run, steps=240, without_memory=True)
    assert watch.notices == [
        "The run continues with an empty memory and new episodes: what it remembered is left out. Learning "
        "waits for 30 "
        "steps, as at the run's start. From here the run is not the same, number by number, as one that was never "
        "interrupted."
    ]
    assert watch.began_anew
    assert nothing_left(watch.memory)
    assert not any(watch.written[160])
    made, learned = watch.updates[160], [step for step in watch.updates if watch.updates[step] > watch.updates[160]]
    assert made == before["learner"]["updates"]
    assert learned[0] > 190
    assert watch.updates[240] > made
    after = checkpoints(run).load_latest()  # the whole memory, from segments that are new
    assert (after.step, after.problems) == (240, [])
    memory = after.state["memory"]
    assert min(memory["envs"]["written"]) >= 40
    if "sampled" in before["memory"]["sampler"]:
        assert memory["sampler"]["sampled"] == before["memory"]["sampler"]["sampled"] + watch.updates[240] - made
    assert go_on(run, steps=280).notices == []


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("name", ["dqfd", "r2d3"])
def test_demonstrations_stay_and_pretraining_is_not_repeated(tmp_path: Path, name: str, by_priority: bool):
    hyperparameters = CHOICES | {"importance_anneal_samples": 50, "pretraining_updates": 6}
    hyperparameters |= {"demonstrations": recorded(tmp_path / "demos")} | (SEQUENCES if name == "r2d3" else {})
    if by_priority:
        hyperparameters |= {"share_by_priority": True}
    run = train(tmp_path, small(name, **hyperparameters), environment="CartPole-v1", num_envs=2, steps=160, **CUT)
    damage_memory(run)
    before = checkpoints(run).load_latest(memory=False).state["memory"]
    watch = go_on(run, steps=240, without_memory=True)
    assert len(watch.notices) == 1
    assert watch.updates[240] > watch.updates[160]
    assert min(step for step in watch.updates if watch.updates[step] > watch.updates[160]) > 190
    after = checkpoints(run).load_latest().state["memory"]
    assert after["pretrained"] == before["pretrained"] == 6
    sampled = [part["sampler"]["sampled"] for part in (after["agent"], after["experts"])]
    assert sampled[0] == sampled[1]  # one importance exponent for both
    assert sampled[0] == watch.updates[240]


def test_a_run_that_learns_from_rollouts_goes_on_exactly(tmp_path: Path):
    whole = train(tmp_path, small("ppo"), name="whole")
    run = train(tmp_path, small("ppo"), name="run", callbacks=[StopAt(100)])
    watch = go_on(run, without_memory=True)
    assert watch.notices == ["ppo has no replay memory: nothing was left out, and the run continues exactly."]
    assert_same(whole, run)


def test_too_few_steps_to_learn_anything_more_are_said(tmp_path: Path):
    run = train(tmp_path, steps=160)
    watch = go_on(run, steps=190, without_memory=True)
    assert "Learning waits for 30 steps, as at the run's start. From here" in watch.notices[0]
    assert watch.notices[1:] == [
        "From step 160 on, 30 steps are too few: there will be no update, because learning_starts is 30. "
        "Increase --steps, or lower these options."
    ]
    assert watch.updates[190] == watch.updates[160]


def test_a_checkpoint_of_the_same_step_is_replaced_with_its_memory(tmp_path: Path):
    """Stopped before the first step, nothing is written: the damaged memory is not made worse."""
    run = train(tmp_path, steps=160)
    damage_memory(run)
    go_on(run, without_memory=True)
    with pytest.raises(CheckpointError, match="--without-memory"):
        run.resume()


# ---------------------------------------------------------------------------------------------------- the store
def test_a_store_that_goes_on_without_memory_begins_with_new_segments(two: CheckpointStore):
    for name in segment_names(two):
        flip_bit(two.folder / "memory" / name, 90)
    damaged = segment_names(two)
    store = reopened(two)
    loaded = store.load_latest(memory=False)
    assert (loaded.step, list(loaded.segments), store.covered.tolist()) == (200, [], [0, 0])
    memory = FakeMemory(rows=40)
    memory.add(3, 2)
    save(store, memory, 300)
    assert segment_names(store) == [*damaged, "segment-000000000003.safetensors"]  # they are still the older one's
    assert has_all_rows(reopened(store).load_latest(), np.array([3, 2]), 40)
    assert store.covered.tolist() == [3, 2]
    memory.add(3, 2)
    save(store, memory, 400)
    assert segment_names(store) == ["segment-000000000003.safetensors", "segment-000000000004.safetensors"]
    assert has_all_rows(reopened(store).load_latest(), np.array([6, 4]), 40)


def test_a_save_that_fails_does_not_bring_the_memory_back(two: CheckpointStore, monkeypatch: pytest.MonkeyPatch):
    store = reopened(two)
    store.load_latest(memory=False)
    memory = FakeMemory(rows=40)
    memory.add(3, 2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("duetto.storage.checkpoint.atomic_io.write_file", full)
        with pytest.raises(CheckpointError, match="No space left"):
            save(store, memory, 300)
    assert store.covered.tolist() == [0, 0]
    save(store, memory, 300)
    assert has_all_rows(reopened(store).load_latest(), np.array([3, 2]), 40)
