"""Push a run to the Hub: the files, the card, private data, and refusals."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.envs.classic_control import PendulumEnv
from hub_server import TOKEN, Server
from small_runs import AtStart

import duetto
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.storage import signing

BEST = {f"checkpoints/best/N/{name}" for name in ("state.json", "state.safetensors", "info.json", "manifest.json")}


def normalized_names(files: Iterable[str]) -> set[str]:
    """Return the file names with the step of the best checkpoint replaced by N."""
    return {re.sub(r"best/\d{12}", "best/N", name) for name in files}


def checkpoint(step: int) -> set[str]:
    return {f"checkpoints/step-{step:012}/{name}" for name in ("state.json", "state.safetensors", "manifest.json")}


SMALL: dict[str, Any] = {
    "hidden": (8,), "batch_size": 4, "random_steps": 30, "learning_starts": 30, "replay_capacity": 50
}  # fmt: skip
OPTIONS: dict[str, Any] = {"steps": 40, "backend": "torch", "device": "cpu", "threads": 1, "evaluate_every": 0}
LOGS = {"config.yaml", "evaluations.csv", "metrics.jsonl"}
ALL = LOGS | BEST | checkpoint(60) | {"README.md"}


def card_metadata(card: str) -> Any:
    return yaml.safe_load(card.split("---\n")[1])


# ---------------------------------------------------------------------------------------------------- sent files
def test_push_sends_run_evaluation_and_video(server: Server, run: Run):
    pytest.importorskip("imageio_ffmpeg")
    pushed = duetto.push(run, "me/pendulum", episodes=3, seed=7)
    repository = server.repositories["me/pendulum"]
    sent = repository.files()
    assert normalized_names(sent) == {".gitattributes"} | ALL | {"replay.mp4"}
    assert pushed.where == f"{server.address}/me/pendulum"
    assert pushed.files == {name: len(data) for name, data in sent.items() if name != ".gitattributes"}
    assert not repository.private
    assert sent["replay.mp4"][4:8] == b"ftyp"
    measured = run.evaluate(episodes=3, seed=7)
    np.testing.assert_array_equal(pushed.evaluation.returns, measured.returns)
    assert repository.messages[1:] == [f"td3: mean return {measured}"]


def test_second_checkpoint_of_a_step_has_a_name_that_pull_knows(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(run.path, tmp_path / "twice")
    [last] = (tmp_path / "twice" / "checkpoints").glob("step-*60")
    last.rename(last.with_name(f"{last.name}-2"))
    monkeypatch.chdir(tmp_path)
    pushed = duetto.push(Run(tmp_path / "twice"), "me/pendulum", episodes=2, video=False, dry_run=True)
    assert normalized_names(pushed.files) == ALL


def test_model_card_has_the_hub_format(server: Server, run: Run):
    """The metadata that huggingface_hub reads, as on the cards of Stable-Baselines3's agents."""
    from huggingface_hub import ModelCard

    duetto.push(run, "me/pendulum", episodes=2, video=False)
    text = server.repositories["me/pendulum"].files()["README.md"].decode()
    measured = run.evaluate(episodes=2)
    value = f"{measured.mean_return:.2f} +/- {measured.std_return:.2f}"
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
    dataset = {"name": "Pendulum-v1 (max_episode_steps=30)", "type": "Pendulum-v1"}
    assert card_metadata(text) == {
        "library_name": "duetto",
        "tags": ["Pendulum-v1", "deep-reinforcement-learning", "reinforcement-learning", "duetto"],
        "model-index": [{"name": "TD3", "results": [{"task": task, "dataset": dataset, "metrics": [metric]}]}],
    }
    read = ModelCard(text).data
    (result,) = read.eval_results or []
    assert (result.dataset_type, result.metric_type, result.metric_value) == ("Pendulum-v1", "mean_reward", value)
    for said in (
        "# TD3 on `Pendulum-v1 (max_episode_steps=30)`",
        f"**{value}** over 2 whole episodes",
        "seed 0, checkpoint last",
        "duetto pull me/pendulum --output pendulum",
        "duetto evaluate pendulum --episodes 2 --seed 0",
        "duetto train td3 --config pendulum/config.yaml",
        f"gymnasium {gymnasium.__version__}",
    ):
        assert said in text


def test_commands_on_model_card_reproduce_its_numbers(server: Server, run: Run, command: Any):
    """`duetto pull` and `duetto evaluate` as printed on the card give the card's numbers."""
    duetto.push(run, "me/pendulum", episodes=2, seed=3, checkpoint="best", video=False)
    card = server.repositories["me/pendulum"].files()["README.md"].decode()
    lines = [line for line in card.splitlines() if line.startswith(("duetto pull", "duetto evaluate"))]
    assert lines[1] == "duetto evaluate pendulum --checkpoint best --episodes 2 --seed 3"
    assert "duetto video pendulum --checkpoint best" in card
    for line in lines:
        code, out, err = command(*line.split()[1:])
        assert code == 0, err
    mean, std = (run.evaluate(2, "best", 3).mean_return, run.evaluate(2, "best", 3).std_return)
    assert f"mean return {mean:.1f} ± {std:.1f} over 2 episodes" in out
    code = card.split("```python\n")[1].split("```")[0].replace('"pendulum")', '"again")')
    exec(code, {"observation": [1.0, 0.0, 0.0]})


def test_second_push_updates_the_repository(server: Server, run: Run):
    first = duetto.push(run, "me/pendulum", checkpoint=30, episodes=1, video=False)
    assert normalized_names(first.files) == LOGS | BEST | checkpoint(30) | {"README.md"}
    np.testing.assert_array_equal(first.evaluation.returns, run.evaluate(1, 30).returns)
    repository = server.repositories["me/pendulum"]
    assert "for 30 steps" in repository.files()["README.md"].decode()
    repository.commit("main", repository.files() | {"LICENSE": b"mine", "replay.mp4": b"old"}, "by hand")
    duetto.push(run, "me/pendulum", episodes=1, video=False)
    assert normalized_names(repository.files()) == {".gitattributes", "LICENSE"} | ALL
    assert len(repository.commits) == 4


def test_private_push_creates_private_repository(server: Server, run: Run):
    few = duetto.push(run, "me/hidden", episodes=1, video=False, private=True)
    repository = server.repositories["me/hidden"]
    assert repository.private
    assert few.where == f"{server.address}/me/hidden"
    assert normalized_names(repository.files()) == {".gitattributes"} | ALL


def test_run_pushed_with_replay_buffer_resumes_exactly(server: Server, run: Run, trained: Path, tmp_path: Path):
    pushed = duetto.push(run, "me/pendulum", episodes=1, video=False, memory=True)
    assert pushed.notices == []
    own = Run(shutil.copytree(trained, tmp_path / "own"))
    pulled = duetto.pull("me/pendulum", tmp_path / "pulled")
    assert pulled.notices == []
    said: list[str] = []
    for each in (own, pulled):
        each.resume(steps=80, callbacks=[AtStart(lambda trainer: said.extend(trainer.notices))])
    assert said == []
    one, two = (each.agent().parameters() for each in (own, pulled))
    for network, arrays in one.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, two[network][name])
    assert [row["mean_return"] for row in own.evaluations()] == [row["mean_return"] for row in pulled.evaluations()]


# ---------------------------------------------------------------------------------------------------- private data
class FileEnv(PendulumEnv):
    """Takes the path of a file, as MuJoCo's environments do."""

    def __init__(self, file: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.api_key = "hunter2"


class PrivateState(duetto.Callback):
    """A callback with private data in its state."""

    def state_dict(self) -> dict[str, Any]:
        return {"key": "a secret of mine"}


@pytest.fixture
def personal_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Train a run with personal data in its options, command, `from` entry and callbacks."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    gymnasium.register("Filed-v0", FileEnv, max_episode_steps=20)
    made = duetto.train(
        duetto.TD3(**SMALL),
        "Filed-v0",
        runs_dir=tmp_path / "alices runs",
        name="made",
        environment_options={"file": "/home/alice/robots/arm.xml"},
        callbacks=[PrivateState()],
        **OPTIONS,
    )
    began = {"run": "/home/alice/runs/first", "checkpoint": "last", "step": 5}
    changed = dataclasses.replace(
        made.config, command="duetto train td3 Filed-v0 --runs-dir /home/alice/runs", began_from=began
    )
    dataclasses.replace(changed, signature="22" * 32).save(made.path / "config.yaml")
    yield Run(made.path)
    del gymnasium.registry["Filed-v0"]


def test_push_sends_nothing_personal(server: Server, personal_run: Run, tmp_path: Path):
    assert b"/home/alice" in (personal_run.path / "config.yaml").read_bytes()
    pushed = duetto.push(personal_run, "me/filed", episodes=1, video=False, memory=True)
    everything = b"\n".join(server.repositories["me/filed"].files().values())
    for said in ("/home", "alice", str(tmp_path), "22" * 32, "signature", "secret", "hunter2", TOKEN):
        assert said.encode() not in everything, said
    (notice,) = pushed.notices
    assert notice == ("Of paths on this machine, only the last name is sent: environment.options.file, from.run.")
    card = server.repositories["me/filed"].files()["README.md"].decode()
    assert "duetto train td3 --config filed/config.yaml\n" in card
    assert "First networks: step 5 of the run first; give it with --from RUN" in card
    assert "# TD3 on `Filed-v0 (file=arm.xml)`" in card
    pulled = duetto.pull("me/filed", tmp_path / "pulled")
    assert pulled.config.environment_options == {"file": "arm.xml"}
    assert pulled.agent().notices == []  # the config in the checkpoint agrees with config.yaml
    pulled.resume(steps=50)


def test_push_follows_no_links(server: Server, trained: Path, tmp_path: Path):
    folder = shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "diary").write_text("dear diary")
    (folder / "evaluations.csv").unlink()
    (folder / "evaluations.csv").symlink_to(tmp_path / "diary")
    with pytest.raises(DuettoError, match="is a link"):
        duetto.push(folder, "me/run", episodes=1)
    assert server.repositories == {}


def test_push_of_unsigned_environment_requires_trust(server: Server, trained: Path, tmp_path: Path):
    folder = shutil.copytree(trained, tmp_path / "run")
    config = (folder / "config.yaml").read_text().replace("id: Pendulum-v1", "id: brought:Pendulum-v1")
    (folder / "config.yaml").write_text(config)
    with pytest.raises(UsageError, match="--trust"):
        duetto.push(folder, "me/run", episodes=1)
    assert server.repositories == {}


def test_push_without_video_gives_the_reason(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    def missing() -> None:
        raise UsageError("Videos need imageio and ffmpeg: pip install 'duetto[video]'.")

    monkeypatch.setattr("duetto.training.video.imageio", missing)
    pushed = duetto.push(run, "me/run", episodes=1)
    sent = server.repositories["me/run"].files()
    assert "replay.mp4" not in sent
    assert "shows one episode" not in sent["README.md"].decode()
    assert "There is no video: Videos need imageio and ffmpeg: pip install 'duetto[video]'." in pushed.notices


# ---------------------------------------------------------------------------------------------------- dry runs
def test_dry_run_of_push_makes_no_connection(
    user_without_token: None, run: Run, command: Any, monkeypatch: pytest.MonkeyPatch
):
    def refuse_connection(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse_connection)
    code, out, err = command("push", run.path, "me/pendulum", "--dry-run", "--episodes", "1", "--no-video")
    assert code == 0, err
    found = {path.relative_to("hub/pendulum").as_posix() for path in Path("hub").rglob("*") if path.is_file()}
    assert normalized_names(found) == ALL
    assert "hub/pendulum: nothing was sent." in out
    assert f"{Path('hub/pendulum/config.yaml').stat().st_size:,}  config.yaml" in out
    assert "The replay buffer" in err


def test_failed_dry_run_of_push_leaves_nothing(user_without_token: None, run: Run):
    with pytest.raises(DuettoError, match="no checkpoint at step 31"):
        duetto.push(run, "me/pendulum", checkpoint=31, dry_run=True)
    assert not Path("hub").exists()


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("name", ["pendulum", "me/pen/dulum", "../pendulum", "me/a b"])
def test_invalid_repository_name_is_refused(user_without_token: None, run: Run, name: str):
    with pytest.raises(UsageError, match="must be USER/NAME"):
        duetto.push(run, name)


def test_push_without_token_is_refused(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match=r"There is no token for the Hub\. Log in with `hf auth login`"):
        duetto.push(run, "me/run")
    assert server.requests == []


def test_unknown_token_is_reported_before_evaluation(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    monkeypatch.setattr(Run, "evaluate", None)
    with pytest.raises(DuettoError, match=r"401 to your account.*Log in again") as failed:
        duetto.push(run, "me/run")
    assert "hf_old" not in str(failed.value)


def test_push_refuses_repository_with_foreign_files(server: Server, run: Run):
    there = server.repository("me/model", **{"pytorch_model.bin": b"weights"})
    with pytest.raises(UsageError, match=r"contains files of something other than a run \(pytorch_model.bin\)"):
        duetto.push(run, "me/model")
    assert len(there.commits) == 1
    for files in ({"config.yaml": b""}, {"config.yaml": b"", "checkpoints/step-1000/model.safetensors": b"weights"}):
        server.repository("me/other", **files)
        with pytest.raises(UsageError, match="contains files of something other than a run"):
            duetto.push(run, "me/other")


def test_private_push_to_public_repository_is_refused(server: Server, run: Run):
    server.repository("me/run")
    with pytest.raises(UsageError, match="is public"):
        duetto.push(run, "me/run", private=True)


@pytest.mark.parametrize(
    ("call", "status", "said"),
    [
        ("POST .*/commit/", 500, "answers 500 to me/run"),
        ("POST .*/preupload/", 400, "answers 400"),
        ("PUT /large/", 403, "Your token may not"),
        ("POST /api/repos/create", 403, "Your token may not do that"),
        ("GET /api/models/me/run", 503, "Try again later"),
    ],
)
def test_push_reports_server_errors(server: Server, run: Run, call: str, status: int, said: str):
    server.refusals[call] = status
    with pytest.raises(DuettoError, match=said) as failed:
        duetto.push(run, "me/run", episodes=1, video=False)
    assert "\x1b" not in str(failed.value)
    assert all(set(there.files()) == {".gitattributes"} for there in server.repositories.values())


def test_push_reports_invalid_server_answer(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hub_server.Handler._json", lambda self, value, status=200: self._answer(200, b"<html>"))
    with pytest.raises(DuettoError, match=r"127\.0\.0\.1:.* .* its answer to your account cannot be used"):
        duetto.push(run, "me/run", episodes=1)


def test_push_without_huggingface_hub_names_install_command(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.tools.hub.client.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs huggingface_hub\. Install: pip install"):
        duetto.push(run, "me/run")
