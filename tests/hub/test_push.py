"""A run on its way to the Hub: what is sent, what the card says, what stays here, and who may refuse."""

from __future__ import annotations

import dataclasses
import json
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
from duetto.storage.config import Config, Event, History, RunOptions
from duetto.tools.hub import model_card
from duetto.training.evaluation import Evaluation

BEST = {f"checkpoints/best/N/{name}" for name in ("state.json", "state.safetensors", "info.json", "manifest.json")}


def named(files: Iterable[str]) -> set[str]:
    """The files' names, whichever evaluation was the best."""
    return {re.sub(r"best/\d{12}", "best/N", name) for name in files}


def checkpoint(step: int) -> set[str]:
    return {f"checkpoints/step-{step:012}/{name}" for name in ("state.json", "state.safetensors", "manifest.json")}


SMALL: dict[str, Any] = {
    "hidden": (8,), "batch_size": 4, "random_steps": 30, "learning_starts": 30, "replay_capacity": 50
}  # fmt: skip
OPTIONS: dict[str, Any] = {"steps": 40, "backend": "torch", "device": "cpu", "threads": 1, "evaluate_every": 0}
LOGS = {"config.yaml", "evaluations.csv", "metrics.jsonl"}
ALL = LOGS | BEST | checkpoint(60) | {"README.md"}


def front(card: str) -> Any:
    return yaml.safe_load(card.split("---\n")[1])


# ---------------------------------------------------------------------------------------------------- what is sent
def test_a_run_is_sent_with_what_it_can_do(server: Server, run: Run):
    pytest.importorskip("imageio_ffmpeg")
    pushed = duetto.push(run, "me/pendulum", episodes=3, seed=7)
    repository = server.repositories["me/pendulum"]
    sent = repository.files()
    assert named(sent) == {".gitattributes"} | ALL | {"replay.mp4"}
    assert pushed.where == f"{server.address}/me/pendulum"
    assert pushed.files == {name: len(data) for name, data in sent.items() if name != ".gitattributes"}
    assert not repository.private
    assert sent["replay.mp4"][4:8] == b"ftyp"
    measured = run.evaluate(episodes=3, seed=7)
    np.testing.assert_array_equal(pushed.evaluation.returns, measured.returns)
    assert repository.messages[1:] == [f"td3: mean return {measured}"]


def test_the_card_is_of_the_zoos_form(server: Server, run: Run):
    """As huggingface_hub reads it, and as Stable-Baselines3's agents on the Hub have it."""
    from huggingface_hub import ModelCard

    duetto.push(run, "me/pendulum", episodes=2, video=False)
    text = server.repositories["me/pendulum"].files()["README.md"].decode()
    measured = run.evaluate(episodes=2)
    value = f"{measured.mean_return:.2f} +/- {measured.std_return:.2f}"
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
    dataset = {"name": "Pendulum-v1 (max_episode_steps=30)", "type": "Pendulum-v1"}
    assert front(text) == {
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


def test_the_cards_lines_do_what_they_say(server: Server, run: Run, command: Any):
    """The evaluation of what was pulled by the card's own commands gives the card's numbers."""
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


@pytest.mark.parametrize("which", [30, "best"])
def test_another_checkpoint(server: Server, run: Run, which: Any):
    pushed = duetto.push(run, "me/pendulum", checkpoint=which, episodes=1, video=False)
    wanted = checkpoint(30) if which == 30 else checkpoint(60)
    assert named(pushed.files) == LOGS | BEST | wanted | {"README.md"}
    np.testing.assert_array_equal(pushed.evaluation.returns, run.evaluate(1, which).returns)
    card = server.repositories["me/pendulum"].files()["README.md"].decode()
    assert f"for {run.agent(which).step:,} steps" in card


def test_twice_is_one_repository_brought_up_to_date(server: Server, run: Run):
    duetto.push(run, "me/pendulum", checkpoint=30, episodes=1, video=False)
    repository = server.repositories["me/pendulum"]
    repository.commit("main", repository.files() | {"LICENSE": b"mine", "replay.mp4": b"old"}, "by hand")
    duetto.push(run, "me/pendulum", episodes=1, video=False)
    assert named(repository.files()) == {".gitattributes", "LICENSE"} | ALL
    assert len(repository.commits) == 4


def test_options_of_the_repository(server: Server, run: Run):
    few = duetto.push(run, "me/hidden", episodes=1, video=False, private=True)
    repository = server.repositories["me/hidden"]
    assert repository.private
    assert few.where == f"{server.address}/me/hidden"
    assert named(repository.files()) == {".gitattributes"} | ALL


def test_with_its_memory_a_run_goes_on_exactly(server: Server, run: Run, trained: Path, tmp_path: Path):
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


# ---------------------------------------------------------------------------------------------------- what stays here
class Filed(PendulumEnv):
    """Takes a path, as MuJoCo's environments do."""

    def __init__(self, file: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.api_key = "hunter2"


class Kept(duetto.Callback):
    """Has a state that is nobody's business."""

    def state_dict(self) -> dict[str, Any]:
        return {"key": "a secret of mine"}


@pytest.fixture
def personal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose options, command, starting and callbacks tell of its owner."""
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    gymnasium.register("Filed-v0", Filed, max_episode_steps=20)
    made = duetto.train(
        duetto.TD3(**SMALL),
        "Filed-v0",
        runs_dir=tmp_path / "alices runs",
        name="made",
        environment_options={"file": "/home/alice/robots/arm.xml"},
        callbacks=[Kept()],
        **OPTIONS,
    )
    began = {"run": "/home/alice/runs/first", "checkpoint": "last", "step": 5}
    changed = dataclasses.replace(
        made.config, command="duetto train td3 Filed-v0 --runs-dir /home/alice/runs", began_from=began
    )
    dataclasses.replace(changed, signature="22" * 32).save(made.path / "config.yaml")
    yield Run(made.path)
    del gymnasium.registry["Filed-v0"]


def test_nothing_personal_is_sent(server: Server, personal: Run, tmp_path: Path):
    assert b"/home/alice" in (personal.path / "config.yaml").read_bytes()
    pushed = duetto.push(personal, "me/filed", episodes=1, video=False, memory=True)
    everything = b"\n".join(server.repositories["me/filed"].files().values())
    for said in ("/home", "alice", str(tmp_path), "22" * 32, "signature", "secret", TOKEN):
        assert said.encode() not in everything, said
    (notice,) = pushed.notices
    assert notice == ("Only the last name of paths on this machine is sent: environment.options.file, from.run.")
    card = server.repositories["me/filed"].files()["README.md"].decode()
    assert "duetto train td3 --config filed/config.yaml\n" in card
    assert "First networks: step 5 of the run first; give it with --from RUN" in card
    assert "# TD3 on `Filed-v0 (file=arm.xml)`" in card
    pulled = duetto.pull("me/filed", tmp_path / "pulled")
    assert pulled.config.environment_options == {"file": "arm.xml"}
    assert pulled.agent().notices == []  # what the checkpoint says of its config fits what is in config.yaml
    pulled.resume(steps=50)


def test_the_card_says_what_was_done_to_a_run_after_it_had_begun():
    history = History(inexact=(Event(60, "new episodes"),))
    config = Config(duetto.TD3(), "Pendulum-v1", RunOptions(backend="torch", device="cpu"), history=history)
    result = model_card.CardResult(Evaluation(np.ones(2), np.ones(2, int)), "last", 10, 0)
    text = model_card.card(config, "me/x", result, False)
    assert "Not repeatable exactly: step 60: new episodes" in text
    assert "Not sent here" not in text


def test_what_environments_hold_is_not_sent(server: Server, personal: Run, tmp_path: Path):
    """Their attributes are in no checkpoint; their episodes are sent with the memory, which is asked for."""
    for memory in (False, True):
        duetto.push(personal, "me/filed", episodes=1, video=False, memory=memory)
        everything = b"\n".join(server.repositories["me/filed"].files().values())
        assert b"hunter2" not in everything
        assert (b"environments/0/actions" in everything) is memory


def test_of_an_environments_file_its_name_is_sent(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    file = tmp_path / "alices tasks" / "swing.py"
    file.parent.mkdir()
    file.write_text(
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "from gymnasium.wrappers import TimeLimit\n"
        "class Swing(TimeLimit):\n"
        "    def __init__(self, render_mode=None):\n"
        "        super().__init__(PendulumEnv(render_mode=render_mode), 20)\n"
    )
    run = duetto.train(duetto.TD3(**SMALL), f"{file}:Swing", runs_dir=tmp_path / "runs", **OPTIONS)
    duetto.push(run, "me/swing", episodes=1, video=False)
    files = server.repositories["me/swing"].files()
    assert b"alice" not in b"\n".join(files.values())
    card = files["README.md"].decode()
    assert "# TD3 on `swing.py:Swing`" in card
    assert "duetto train td3 --config swing/config.yaml\n" in card
    assert "Environment: swing.py:Swing." in card
    assert b"swing.py:Swing" in files["config.yaml"]


def test_of_what_was_handed_over_in_python_the_card_says_so(nobody: None, tmp_path: Path):
    class Mild(duetto.TD3):
        pass

    class Short(gymnasium.wrappers.TimeLimit):
        def __init__(self, render_mode: str | None = None) -> None:
            super().__init__(PendulumEnv(render_mode=render_mode), 20)

    run = duetto.train(Mild(**SMALL), Short, runs_dir=tmp_path / "runs", **OPTIONS)
    duetto.push(run, "me/short", episodes=1, video=False, dry_run=True)
    card = Path("hub/short/README.md").read_text()
    assert "# Mild on `Short`" in card
    assert front(card)["model-index"][0]["name"] == "Mild"
    assert "duetto train FILE.py:Mild --config short/config.yaml ENVIRONMENT\n" in card
    assert "duetto evaluate short --episodes 1 --seed 0 --environment ENVIRONMENT\n" in card
    assert "Algorithm: the class Mild in a file, FILE.py." in card
    assert "Environment: Short was a Python object" in card


def test_a_link_is_not_followed(server: Server, trained: Path, tmp_path: Path):
    folder = shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "diary").write_text("dear diary")
    (folder / "evaluations.csv").unlink()
    (folder / "evaluations.csv").symlink_to(tmp_path / "diary")
    with pytest.raises(DuettoError, match="is a link"):
        duetto.push(folder, "me/run", episodes=1)
    assert server.repositories == {}


def test_a_strangers_environment_is_not_made(server: Server, trained: Path, tmp_path: Path):
    folder = shutil.copytree(trained, tmp_path / "run")
    config = (folder / "config.yaml").read_text().replace("id: Pendulum-v1", "id: brought:Pendulum-v1")
    (folder / "config.yaml").write_text(config)
    with pytest.raises(UsageError, match="--trust"):
        duetto.push(folder, "me/run", episodes=1)
    assert server.repositories == {}


def test_where_no_video_can_be_made_it_says_why(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    def missing() -> None:
        raise UsageError("Videos need imageio and ffmpeg: pip install 'duetto[video]'.")

    monkeypatch.setattr("duetto.training.video.imageio", missing)
    pushed = duetto.push(run, "me/run", episodes=1)
    sent = server.repositories["me/run"].files()
    assert "replay.mp4" not in sent
    assert "shows one episode" not in sent["README.md"].decode()
    assert "There is no video: Videos need imageio and ffmpeg: pip install 'duetto[video]'." in pushed.notices


def test_the_command_says_what_was_sent(server: Server, run: Run, command: Any):
    call = ["push", run.path, "me/run", "--episodes", "1", "--no-video"]
    code, out, err = command(*call, "--json")
    assert code == 0, err
    said = json.loads(out)
    assert (said["sent"], said["where"]) == (True, f"{server.address}/me/run")
    assert named(said["files"]) == ALL
    out = command(*call).out
    assert f"{server.address}/me/run: sent to me/run." in out


# ---------------------------------------------------------------------------------------------------- trials
def test_a_trial_asks_nobody(nobody: None, run: Run, command: Any, monkeypatch: pytest.MonkeyPatch):
    def asked(*_: Any) -> None:
        raise AssertionError("somebody is asked")

    monkeypatch.setattr("socket.socket.connect", asked)
    code, out, err = command("push", run.path, "me/pendulum", "--dry-run", "--episodes", "1", "--no-video")
    assert code == 0, err
    found = {path.relative_to("hub/pendulum").as_posix() for path in Path("hub").rglob("*") if path.is_file()}
    assert named(found) == ALL
    assert "hub/pendulum: nothing was sent." in out
    assert f"{Path('hub/pendulum/config.yaml').stat().st_size:,}  config.yaml" in out
    assert "The replay memory" in err


def test_a_trial_that_fails_leaves_nothing(nobody: None, run: Run):
    with pytest.raises(DuettoError, match="no checkpoint at step 31"):
        duetto.push(run, "me/pendulum", checkpoint=31, dry_run=True)
    assert not Path("hub").exists()


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("name", ["pendulum", "me/pen/dulum", "/pendulum", "me/", "../pendulum", "me/a b", "me/.."])
def test_what_is_no_repository(nobody: None, run: Run, name: str):
    with pytest.raises(UsageError, match="must be USER/NAME"):
        duetto.push(run, name)


def test_without_a_token(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match=r"There is no token for the Hub\. Log in with `hf auth login`"):
        duetto.push(run, "me/run")
    assert server.asked == []


def test_a_token_that_is_not_known_is_said_before_anything_is_evaluated(
    server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    monkeypatch.setattr(Run, "evaluate", None)
    with pytest.raises(DuettoError, match=r"401 to your account.*Log in again") as failed:
        duetto.push(run, "me/run")
    assert "hf_old" not in str(failed.value)


def test_something_else_is_not_mixed_with_a_run(server: Server, run: Run):
    there = server.repository("me/model", **{"pytorch_model.bin": b"weights"})
    with pytest.raises(UsageError, match=r"holds something else than a run \(pytorch_model.bin\)"):
        duetto.push(run, "me/model")
    assert len(there.commits) == 1


def test_what_everybody_reads_does_not_get_a_private_run(server: Server, run: Run):
    server.repository("me/run")
    with pytest.raises(UsageError, match="everybody can read it"):
        duetto.push(run, "me/run", private=True)


@pytest.mark.parametrize(
    ("call", "status", "said"),
    [
        ("POST .*/commit/", 500, "answers 500 to me/run"),
        ("POST .*/commit/", 403, "Your token may not do that"),
        ("POST .*/commit/", 412, "answers 412"),
        ("POST .*/preupload/", 400, "answers 400"),
        ("PUT /large/", 403, "Your token may not"),
        ("POST .*/batch", 500, "Try again later"),
        ("POST /api/repos/create", 403, "Your token may not do that"),
        ("GET /api/models/me/run", 503, "Try again later"),
    ],
)
def test_a_server_that_refuses(server: Server, run: Run, call: str, status: int, said: str):
    server.refusals[call] = status
    with pytest.raises(DuettoError, match=said) as failed:
        duetto.push(run, "me/run", episodes=1, video=False)
    assert "\x1b" not in str(failed.value)
    assert all(set(there.files()) == {".gitattributes"} for there in server.repositories.values())


def test_an_answer_that_is_none(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hub_server.Handler._json", lambda self, value, status=200: self._answer(200, b"<html>"))
    with pytest.raises(DuettoError, match=r"127\.0\.0\.1:.* .* its answer to your account cannot be used"):
        duetto.push(run, "me/run", episodes=1)


def test_offline(server: Server, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    with pytest.raises(DuettoError, match="HF_HUB_OFFLINE"):
        duetto.push(run, "me/run")


def test_without_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.tools.hub.client.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs huggingface_hub\. Install: pip install"):
        duetto.push(run, "me/run")
