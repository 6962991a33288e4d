"""Every command on one short run, compared with Python where there is an equivalent."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import duetto

pytest.importorskip("torch")

Command = Callable[..., Any]
SMALL = "--hidden 8 --batch-size 8 --random-steps 10 --learning-starts 10 --environment-options max_episode_steps=15 "
SMALL += "--backend torch --device cpu --threads 1 --steps 40 --evaluate-every 20 --evaluation-episodes 1 --quiet "
TRAIN = f"train td3 Pendulum-v1 {SMALL} --checkpoint-every 20 --log-every 10 "


def table(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(command: Command, tmp_path: Path) -> Path:
    assert command(f"{TRAIN} --name made").code == 0
    return tmp_path / "runs" / "made"


def test_run_folder_has_open_formats(run: Path):
    assert yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    assert json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["step"] == 40
    assert [row["step"] for row in table(run / "evaluations.csv")] == ["0", "20", "40"]
    assert (run / "checkpoints").is_dir()


def test_evaluate_and_resume(command: Command, run: Path):
    said = json.loads(command("evaluate runs/made --episodes 3 --seed 7 --json").out)
    assert said["mean_return"] == pytest.approx(duetto.Run(run).evaluate(episodes=3, seed=7).mean_return)
    assert command("evaluate runs/made --checkpoint best --episodes 1").code == 0
    assert command("resume runs/made --steps 60 --quiet").code == 0
    assert duetto.Run(run).metrics()[-1]["step"] == 60


def test_video_and_watch(command: Command, run: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert command("video runs/made --output one.mp4").code == 0
    assert Path("one.mp4").read_bytes()[4:8] == b"ftyp"
    assert command("watch runs/made --episodes 1").code == 0


def test_plot_report_and_table(command: Command, run: Path):
    pytest.importorskip("matplotlib")
    for text, file in (("plot", "curves.svg"), ("report", "page.html"), ("table", "results.csv")):
        assert command(f"{text} runs/made --output {file}").code == 0
        assert Path(file).stat().st_size > 100
    rows = table("results.csv")
    assert {row["env_step"] for row in rows} == {"0", "20", "40"}
    assert not re.search(r"""<(script|link|img)[^>]*(src|href)=["']?https?:""", Path("page.html").read_text("utf-8"))


OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def exported_actions(file: Path) -> Any:
    """Return the actions of an exported file, computed without Duetto."""
    if file.suffix == ".onnx":
        import onnxruntime

        return onnxruntime.InferenceSession(str(file)).run(["action"], {"observation": OBS})[0]
    if file.suffix == ".pt2":
        import torch

        return torch.export.load(str(file)).module()(torch.from_numpy(OBS))[0].detach().numpy()
    from jax import export

    return export.deserialize(bytearray(file.read_bytes())).call(OBS)[0]


@pytest.mark.filterwarnings("ignore")  # from PyTorch's exporter
@pytest.mark.parametrize(("form", "needs"), [("onnx", "onnxruntime"), ("torch", "torch"), ("jax", "jax")])
def test_exported_agent_acts_as_the_agent(command: Command, run: Path, form: str, needs: str):
    pytest.importorskip(needs)
    said = json.loads(command(f"export runs/made --format {form} --json").out)
    [file] = [path for path in run.glob("agent.*") if path.suffix != ".json"]
    assert said["checked"]["observations"] > 0
    agent = duetto.load(run)
    np.testing.assert_allclose(exported_actions(file), [agent.act(obs, deterministic=True) for obs in OBS], atol=1e-4)


def test_train_with_config_or_from_option(command: Command, run: Path):
    assert command("train td3 --config runs/made/config.yaml --steps 20 --name again --quiet").code == 0
    assert command(f"{TRAIN} --from runs/made --name tuned").code == 0
    assert duetto.Run("runs/tuned").metrics()[-1]["step"] == 40


def test_train_several_seeds_side_by_side(command: Command):
    assert command(f"{TRAIN} --seeds 0-1").code == 0
    assert len(list(Path("runs").iterdir())) == 2


def test_subprocess_environments_give_the_same_parameters(command: Command):
    assert command(f"{TRAIN} --num-envs 2 --vectorization subprocess --name apart").code == 0
    assert command(f"{TRAIN} --num-envs 2 --name here").code == 0
    apart, here = (duetto.load(f"runs/{name}").parameters() for name in ("apart", "here"))
    np.testing.assert_array_equal(apart["actor"]["layers.0.weight"], here["actor"]["layers.0.weight"])


def test_sweep_trains_the_given_seeds(command: Command):
    assert command(f"sweep td3,ddpg Pendulum-v1 --seeds 4-4 {SMALL}").code == 0
    [folder] = Path("sweeps").iterdir()
    assert [duetto.Run(path.parent).config.run.seed for path in folder.glob("*/config.yaml")] == [4, 4]
    assert len(table(folder / "results.csv")) == 2
    assert command(f"sweep td3,ddpg Pendulum-v1 --seeds 4-4 {SMALL}").code == 0  # all runs are complete


def test_command_line_option_overrides_the_preset(command: Command):
    text = "train ddpg Pendulum-v1 --preset masked --environment-options mask_velocity=false --dry-run --json"
    assert json.loads(command(text).out)["environment"]["options"]["mask_velocity"] is False


def test_tune_writes_a_preset(command: Command):
    pytest.importorskip("optuna")
    assert command(f"tune td3 Pendulum-v1 --trials 2 --seeds 1 --output study {SMALL}").code == 0
    assert len(table("study/trials.csv")) == 2
    best = command("train td3 Pendulum-v1 --preset study/best.yaml --dry-run --json")
    assert best.code == 0, best.err


def test_demos_are_recorded_exported_imported_and_inspected(command: Command, run: Path):
    gymnasium: Any = pytest.importorskip("gymnasium")
    storages: Any = pytest.importorskip("minari.dataset.minari_storage")
    collector: Any = pytest.importorskip("minari.data_collector")
    env = gymnasium.make("Pendulum-v1")
    storage = storages.MinariStorage.new(Path("minari").absolute(), env.observation_space, env.action_space)
    given: Any = {"observations": np.zeros((4, 3)), "actions": np.ones((3, 1)), "rewards": np.ones(3)}
    ends: Any = {"terminations": np.zeros(3, bool), "truncations": np.array([False, False, True])}
    storage.update_episodes([collector.EpisodeBuffer(**given, **ends)])
    brief = "--environment-options max_episode_steps=15"
    for text in (
        f"record Pendulum-v1 --expert runs/made --episodes 2 --output recorded {brief}",
        "export recorded --output exported",
        f"import minari --environment Pendulum-v1 --output imported --trust {brief}",
    ):
        done = command(f"demos {text}")
        assert done.code == 0, f"{text}: {done.err}"
    for name in ("recorded", "imported"):
        assert "Pendulum-v1" in command(f"demos inspect {name}").out


def test_every_preset_is_a_valid_configuration(command: Command):
    algorithms = json.loads(command("list algorithms --json").out)["algorithms"]
    presets = json.loads(command("list presets --json").out)["presets"]
    assert set(presets) == set(algorithms)
    for algorithm in presets:
        simple = "Pendulum-v1" if "Box" in algorithms[algorithm]["actions"] else "CartPole-v1"
        for name in presets[algorithm]:
            calls = (
                command(f"train {algorithm} {place} --preset {name} --dry-run") for place in (simple, "ALE/Pong-v5")
            )
            assert any(call.code == 0 for call in calls), f"{algorithm} {name}"


def test_list_json_has_every_section(command: Command):
    said = json.loads(command("list --json").out)
    assert {"algorithms", "environments", "presets", "extras"} <= set(said)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("train td4 Pendulum-v1", "td3"),
        ("trian td3 Pendulum-v1", "train"),
        ("train td3 Pendulum-v1 --taus 1", "--tau"),
        ("train td3 CartPole-v1", "Box"),
        ("train td3 Pendulum-v1 --tau -1 --dry-run", "tau"),
        ("evaluate nowhere", "nowhere"),
    ],
)
def test_mistake_exits_with_2_and_names_its_cause(command: Command, text: str, word: str):
    code, _, err = command(text)
    assert code == 2
    assert word in err


def test_run_stops_at_the_given_return(command: Command):
    assert command(f"{TRAIN} --stop-at-return -1e9 --name early").code == 0
    assert duetto.Run("runs/early").evaluations()[-1]["step"] < 40


@pytest.mark.filterwarnings("ignore")
def test_cluster_run_makes_as_many_updates(command: Command):
    pytest.importorskip("ray")
    assert command(f"{TRAIN} --cluster --actors 2 --replay-shards 2 --num-envs 2 --name far").code == 0
    assert command(f"{TRAIN} --num-envs 2 --name near").code == 0
    far, near = (duetto.Run(f"runs/{name}") for name in ("far", "near"))
    assert far.metrics()[-1]["step"] == near.metrics()[-1]["step"] == 40
    assert far.metrics()[-1]["learn/updates"] == near.metrics()[-1]["learn/updates"]
