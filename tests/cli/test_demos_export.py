"""`duetto demos export`: a run's replay memory as demonstrations, and demonstrations as a Minari dataset."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from commands import SMALL, Command
from gymnasium.spaces import Box, Dict, Discrete

import duetto as library
from duetto import demonstrations
from duetto.runs.run import Run
from duetto.storage import signing

minari = pytest.importorskip("minari")

OPTIONS: dict[str, Any] = {
    "steps": 120,
    "num_envs": 2,
    "backend": "torch",
    "device": "cpu",
    "threads": 1,
    "evaluate_every": 0,
    "checkpoint_every": 60,
}
LEARNING: dict[str, Any] = {"batch_size": 4, "learning_starts": 1000, "hidden": (8,)}
LOW, HIGH = np.array([-1, 2], np.float32), np.array([3, 2.5], np.float32)


class Diary(gymnasium.Env):
    """Writes down what it shows and is told; episodes of 3 to 9 steps, which end in both ways."""

    made: list[Diary] = []  # noqa: RUF012

    def __init__(self, pictures: bool = False) -> None:
        place = Box(-np.inf, np.inf, (3,), np.float32)
        camera = Box(0, 255, (4, 36, 36), np.uint8)
        self.observation_space = Dict({"front/camera": camera, "place": place}) if pictures else place
        self.action_space = Discrete(4, start=2) if pictures else Box(LOW, HIGH, dtype=np.float32)
        self.episodes: list[dict[str, Any]] = []
        Diary.made.append(self)

    def see(self) -> Any:
        place = self.np_random.normal(size=3).astype(np.float32)
        if not isinstance(self.observation_space, Dict):
            return place
        return {"front/camera": self.np_random.integers(0, 256, (4, 36, 36), dtype=np.uint8), "place": place}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 10))
        self.episodes.append({"obs": [self.see()], "actions": [], "rewards": [], "end": ""})
        return self.episodes[-1]["obs"][-1], {}

    def step(self, action: Any) -> Any:
        episode = self.episodes[-1]
        self.left -= 1
        episode["obs"].append(self.see())
        episode["actions"].append(np.array(action))
        episode.setdefault("told", []).append(action)
        episode["rewards"].append(float(self.np_random.normal()))
        if not self.left:
            episode["end"] = "terminated" if self.np_random.random() < 0.5 else "truncated"
        ends = episode["end"] == "terminated", episode["end"] == "truncated"
        return episode["obs"][-1], episode["rewards"][-1], *ends, {}


def busy() -> list[Diary]:
    """The environments that were learned from; others were made to look at their spaces."""
    return [env for env in Diary.made if any(episode["actions"] for episode in env.episodes)]


def told(episode: dict[str, Any]) -> np.ndarray:
    """The actions as agents give them: choices from 0, numbers in [-1, 1]."""
    actions = np.array(episode["actions"])
    return actions - 2 if actions.ndim == 1 else (actions - LOW) / (HIGH - LOW) * 2 - 1


def played() -> list[dict[str, Any]]:
    """Episodes that are over, of the environments that were learned from, one environment after the other."""
    return [episode for env in busy() for episode in env.episodes if episode["end"]]


def train(folder: Path, algorithm: Any, pictures: bool, **options: Any) -> Run:
    Diary.made.clear()
    return library.train(algorithm, lambda: Diary(pictures), runs_dir=folder, name="made", **OPTIONS | options)


def check(folder: str, wanted: list[dict[str, Any]]) -> None:
    """What Minari reads of the demonstrations against what the environments wrote down, and what Duetto reads."""
    ours = demonstrations.load(folder)
    demonstrations.export_minari(ours, f"{folder}-minari")
    dataset = minari.MinariDataset(Path(f"{folder}-minari"))
    found = list(dataset.iterate_episodes())
    assert len(found) == len(wanted) > 3
    for one, raw in zip(found, wanted, strict=True):
        parts = one.observations if isinstance(one.observations, dict) else {"": one.observations}
        for name, part in parts.items():
            seen = [obs[name.replace("%2F", "/")] if name else obs for obs in raw["obs"]]
            np.testing.assert_array_equal(part, np.stack(seen))
        np.testing.assert_allclose(one.actions, told(raw), rtol=0, atol=1e-6)
        np.testing.assert_array_equal(one.rewards, np.array(raw["rewards"], np.float32))
        last = np.arange(len(raw["rewards"])) == len(raw["rewards"]) - 1
        np.testing.assert_array_equal(one.terminations, last & (raw["end"] == "terminated"))
        np.testing.assert_array_equal(one.truncations, last & (raw["end"] == "truncated"))
    assert [episode.length for episode in ours.episodes] == [len(raw["rewards"]) for raw in wanted]


@pytest.mark.parametrize("which", ["td3", "dqn", "r2d2"])
def test_what_is_remembered_is_what_happened(duetto: Command, tmp_path: Path, which: str):
    algorithm: Any = {
        "td3": library.TD3(**LEARNING, random_steps=20, replay_capacity=1000),
        "dqn": library.DQN(**LEARNING, replay_capacity=1000, prioritized=True),
        "r2d2": library.R2D2(**LEARNING, replay_capacity=1000, burn_in=1, unroll=3, overlap=2, recurrent_size=4),
    }[which]
    run = train(tmp_path, algorithm, pictures=which != "td3")
    code, out, err = duetto("demos", "export", run.path, "--output", "demos/out")
    assert code == 0, err
    check("demos/out", played())
    running = sum(len(env.episodes[-1]["actions"]) for env in busy() if not env.episodes[-1]["end"])
    assert f"Left out: {running} rows of episodes that still run." in err
    assert f"demos/out: {len(played())} episodes" in out
    about = demonstrations.load("demos/out").metadata
    assert about.expert == f"{which} in {run.path}, what it remembers at step 120, exploration included"


def test_episodes_at_the_edge_of_the_ring_are_counted(duetto: Command, tmp_path: Path):
    """60 transitions of 120, in two rings of 30: only what lies in the last 30 of each environment, whole."""
    run = train(tmp_path, library.TD3(**LEARNING, random_steps=20, replay_capacity=60), pictures=False)
    code, _, err = duetto("demos", "export", run.path, "--output", "demos")
    assert code == 0, err
    wanted, lost = [], 0
    for env in busy():
        first = -30  # of the 60 steps, those from 30 on are left
        kept = []
        for episode in env.episodes:
            if first > 0 and episode["end"]:
                kept.append(episode)
            first += len(episode["actions"])
        running = 0 if env.episodes[-1]["end"] else len(env.episodes[-1]["actions"])
        lost += 30 - running - sum(len(episode["actions"]) for episode in kept)
        wanted += kept
    check("demos", wanted)
    assert lost > 0
    assert f"Left out: {lost} rows of episodes whose start is overwritten" in err


def test_an_older_checkpoint_remembers_less(duetto: Command, tmp_path: Path):
    run = train(tmp_path, library.TD3(**LEARNING, random_steps=20, replay_capacity=1000), pictures=False)
    assert duetto("demos", "export", run.path, "--output", "then", "--checkpoint", "60").code == 0
    assert duetto("demos", "export", run.path, "--output", "now").code == 0
    then, now = (demonstrations.load(name).steps for name in ("then", "now"))
    assert 40 < then <= 60 < now


def test_demonstrations_beside_the_memory_are_not_exported(duetto: Command, tmp_path: Path):
    first = train(tmp_path, library.DQN(**LEARNING, replay_capacity=1000), pictures=True)
    assert duetto("demos", "export", first.path, "--output", "demos").code == 0
    folder = tmp_path / "demos"
    assert demonstrations.load(folder).metadata.environment == first.config.environment
    Diary.made.clear()
    learner = library.DQfD(**LEARNING, replay_capacity=1000, demonstrations=str(folder), pretraining_updates=2)
    second = library.train(
        learner, lambda: Diary(True), runs_dir=tmp_path, name="second", **OPTIONS | {"steps": 60, "num_envs": 1}
    )
    assert duetto("demos", "export", second.path, "--output", "again").code == 0
    check("again", played())


def test_a_memory_without_a_whole_episode(duetto: Command):
    assert duetto("train", "td3", "Pendulum-v1", "--steps", "60", *SMALL, "--name", "made").code == 0
    code, out, _ = duetto(
        "demos", "record", "Pendulum-v1", "--expert", "runs/made", "--episodes", "2", "--output", "one"
    )
    assert code == 0
    assert "Duetto's bc, dqfd and r2d3 learn from choices alone; for other libraries: duetto demos export." in out
    code, _, err = duetto("demos", "export", "runs/made", "--output", "replay")
    assert (code, err) == (
        2,
        "duetto: The memory at step 60 holds no whole episode (60 rows of episodes that still run). Train with a "
        "larger replay_capacity or for longer, or record new ones: duetto demos record.\n",
    )
    assert not Path("replay").exists()
    code, _, err = duetto("demos", "export", "runs/made", "--output", "one")
    assert code == 2
    assert "one exists already" in err
    code, _, err = duetto("demos", "export", "runs/made", "--output", "best", "--checkpoint", "best")
    assert code == 2
    assert "The best checkpoint has networks only" in err


def test_options_of_a_run_are_refused_for_demonstrations(duetto: Command):
    Path("demos").mkdir()
    Path("demos/manifest.json").touch()
    code, _, err = duetto("demos", "export", "demos", "--output", "minari", "--overwrite")
    assert code == 2
    assert "demos contains demonstrations, and --checkpoint and --overwrite are of a run." in err


def test_without_a_replay_memory_it_says_so(duetto: Command):
    small = ["--rollout-steps", "10", "--epochs", "1", "--minibatches", "2", "--hidden", "8", "--backend", "torch"]
    assert duetto("train", "ppo", "Pendulum-v1", "--steps", "20", *small, "--evaluate-every", "0").code == 0
    code, _, err = duetto("demos", "export", "runs/ppo-Pendulum-v1-s0", "--output", "demos")
    assert code == 2
    assert "ppo has no replay memory" in err


def test_a_strangers_choice_of_an_environment_is_not_signed(
    duetto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else the dataset would hand on, as the user's own, a module that somebody else named."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    run = train(tmp_path, library.TD3(**LEARNING, random_steps=20, replay_capacity=1000), pictures=False)
    values = yaml.safe_load((run.path / "config.yaml").read_text())
    values["environment"] |= {"id": "somebody:Brought-v0", "remakeable": True}
    (run.path / "config.yaml").write_text(yaml.safe_dump(values))
    code, _, err = duetto("demos", "export", run.path, "--output", "demos")
    assert code == 2
    assert "--trust" in err
    assert not Path("demos").exists()


def test_a_damaged_memory_is_not_exported(duetto: Command, tmp_path: Path):
    run = train(tmp_path, library.TD3(**LEARNING, random_steps=20, replay_capacity=1000), pictures=False)
    shutil.rmtree(run.path / "checkpoints" / "memory")
    code, _, err = duetto("demos", "export", run.path, "--output", "demos")
    assert code == 1
    assert "is missing" in err
    assert not Path("demos").exists()
