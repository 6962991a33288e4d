"""An environment of the user's own on the command line: `FILE.py:CLASS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from commands import SMALL, Command, Result

from duetto import TD3
from duetto.cluster.actor import ActorRole, pack
from duetto.runs.run import Run
from duetto.storage import signing, user_code

FILE = """
import gymnasium
import numpy as np


class Mine(gymnasium.Env):
    def __init__(self, render_mode=None, length=5):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return seen, 1.0, False, self.steps == self.length, {}
"""
REGISTERED = FILE + '\ngymnasium.register("HereAlone-v0", entry_point=Mine)\n'
FOLDER = "runs/td3-mine.py-Mine-s0"


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE, "utf-8")
    return path


@pytest.fixture
def begin(duetto: Command, file: Path) -> Command:
    def call(*arguments: str) -> Result:
        return duetto("train", "td3", "./mine.py:Mine", "--steps", "30", *SMALL, *arguments)

    return call


# ---------------------------------------------------------------------------------------------------- FILE.py:CLASS
def test_it_trains_goes_on_from_elsewhere_and_is_evaluated(
    begin: Command, duetto: Command, file: Path, monkeypatch: pytest.MonkeyPatch
):
    code, out, err = begin("--num-envs", "2", "--vectorization", "subprocess")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith(f"td3 on {file}:Mine, torch on cpu")
    said = yaml.safe_load(Path(FOLDER, "config.yaml").read_text("utf-8"))["environment"]
    assert (said["id"], said["remakeable"], len(said["sha256"])) == (f"{file}:Mine", True, 64)
    (file.parent / "elsewhere").mkdir()
    monkeypatch.chdir(file.parent / "elsewhere")
    folder = f"../{FOLDER}"
    assert duetto("resume", folder, "--steps", "40").code == 0
    code, out, _ = duetto("evaluate", folder, "--episodes", "2", "--json")
    assert (code, json.loads(out)["returns"]) == (0, [5.0, 5.0])
    other = duetto(
        *("evaluate", folder, "--episodes", "1", "--json", "--environment", "../mine.py:Mine"),
        *("--environment-options", "length=3"),
    )
    assert json.loads(other.out)["returns"] == [3.0]
    assert "cannot be shown" not in duetto("video", folder).err  # it draws nothing, and that is what is said


def test_sweep_tune_and_demonstrations_take_it(duetto: Command, file: Path, tmp_path: Path):
    code, out, _ = duetto("sweep", "td3", "./mine.py:Mine", "--seeds", "1", "--dry-run", "--json")
    assert code == 0
    assert "td3-mine.py-Mine-s0" in out
    short = [*SMALL, "--steps", "30", "--trials", "1", "--seeds", "1", "--quiet"]
    assert duetto("tune", "td3", "mine.py:Mine", *short).code == 0
    [study] = Path("studies").iterdir()
    assert study.name == "td3-mine.py-Mine"
    assert duetto("train", "td3", "mine.py:Mine", *SMALL, "--steps", "30").code == 0
    code, _, err = duetto(
        *("demos", "record", "mine.py:Mine", "--expert", FOLDER, "--output", "demos", "--episodes", "2"),
        *("--checkpoint", "last"),
    )
    assert (code, err) == (0, "")


def test_an_edited_file_is_said_and_wants_a_word(begin: Command, duetto: Command, file: Path):
    assert begin().code == 0
    file.write_text(FILE.replace("1.0, False", "2.0, False"), "utf-8")
    code, _, err = duetto("resume", FOLDER, "--steps", "40")
    assert code == 2
    assert "has changed since the checkpoint at step 30, in what decides the numbers: environment.sha256" in err
    code, out, _ = duetto("resume", FOLDER, "--steps", "40", "--accept-changes")
    assert code == 0
    assert "environment.sha256 was" in " ".join(out.split())
    assert duetto("resume", FOLDER, "--steps", "50").code == 0  # from here on it is the file of the checkpoint


@pytest.mark.parametrize("command", ["resume", "evaluate", "video"])
def test_a_strangers_file_is_not_run(
    begin: Command, duetto: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    assert begin().code == 0
    mark = tmp_path / "mark"
    file.write_text(f"open({str(mark)!r}, 'w').close()\n" + FILE, "utf-8")
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "other"))
    code, _, err = duetto(command, FOLDER)
    assert code == 2
    assert f"imports or runs '{file}:Mine', and it was not started by you" in err
    assert "--trust" in err
    assert not mark.exists()


@pytest.mark.parametrize("text", ["a.py:B", "a.py", "/a/b.py:", "C:\\a.py:B"])
def test_whatever_runs_a_file_needs_trust(text: str):
    assert user_code.is_file(text)
    assert signing.needs_trust(text, {})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("./mine.py", "Say which class of"),
        ("./mine.py:Min", "Did you mean 'Mine'?"),
        ("./other.py:Mine", "/other.py cannot be read: No such file or directory."),
    ],
)
def test_mistakes_are_a_sentence(duetto: Command, file: Path, name: str, sentence: str):
    code, out, err = duetto("train", "td3", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert not Path("runs").exists()


def test_a_file_that_is_gone(begin: Command, duetto: Command, file: Path):
    assert begin().code == 0
    file.unlink()
    code, _, err = duetto("resume", FOLDER, "--steps", "40")
    assert code == 2
    assert f"{file} cannot be read: No such file or directory. A run that started with it needs it there." in err
    assert Run(FOLDER).config.checksum == ""


def test_another_machine_gets_the_class_and_needs_no_file(file: Path):
    packed = pack(f"{file}:Mine", {})
    file.unlink()
    ActorRole(packed, TD3(), "torch", "float32", 1, 1)(range(1)).close()


def test_a_module_that_is_not_found(duetto: Command):
    code, _, err = duetto("train", "td3", "found_nowhere:HereAlone-v0")
    assert code == 2
    assert "cannot be made: ModuleNotFoundError: No module named 'found_nowhere'" in err
    assert err.endswith("for a file, write ./FILE.py:CLASS.\n")
