from pathlib import Path

import pytest
from fake_run import NUM_ENVS, FakeMemory, save

from duetto.storage.checkpoint import CheckpointStore


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    (tmp_path / "run").mkdir()
    return CheckpointStore(tmp_path / "run" / "checkpoints", num_envs=NUM_ENVS)


@pytest.fixture
def two_checkpoints(store: CheckpointStore) -> CheckpointStore:
    """A store with checkpoints at steps 100 and 200, and one segment each."""
    memory = FakeMemory()
    for step in (100, 200):
        memory.add(10, 7)
        save(store, memory, step)
    return store
