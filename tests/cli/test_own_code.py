"""A custom algorithm and a custom environment from files: trained, resumed, edited, deleted, unsigned.

The algorithm is the example of docs/extending.md.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from commands import SMALL, Command

import duetto as package
from duetto.algorithms import TD3
from duetto.cluster.actor import ActorRole, pack
from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.storage import signing, user_code
from duetto.testing import check_algorithm
from duetto.tools.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
ENVIRONMENT = """
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


def example_algorithm() -> str:
    found = re.search(r"<!-- file: pessimist\.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


@dataclass
class UserFile:
    """A custom file, the algorithm and environment for `duetto train`, and a run of 60 steps."""

    file: Path
    text: str
    words: tuple[str, str]
    folder: Path


OPTIONS = [*SMALL, "--steps", "60", "--evaluate-every", "0"]


@pytest.fixture(scope="module")
def trained_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], UserFile]:
    """Train once with each kind of file ("algorithm" or "environment")."""
    made: dict[str, UserFile] = {}

    def get(kind: str) -> UserFile:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            name, text = ("pessimist.py", example_algorithm()) if kind == "algorithm" else ("mine.py", ENVIRONMENT)
            file = folder / name
            file.write_text(text, "utf-8")
            words = (f"{file}:Pessimist", "Pendulum-v1") if kind == "algorithm" else ("td3", f"{file}:Mine")
            options = ["--pessimism", "0.25"] if kind == "algorithm" else ["--vectorization", "subprocess"]
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(signing.KEY_FILE, str(folder / "key"))
                with pytest.raises(SystemExit, match=r"^0$"):
                    main(["train", *words, *OPTIONS, *options, "--runs-dir", str(folder), "--name", "made"])
            made[kind] = UserFile(file, text, words, folder / "made")
        return made[kind]

    return get


@pytest.fixture
def own(
    request: pytest.FixtureRequest,
    trained_with: Callable[[str], UserFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> UserFile:
    """Return an unedited file and a copy of its run. The parameter is the kind of file."""
    made = trained_with(request.param)
    made.file.write_text(made.text, "utf-8")
    monkeypatch.setenv(signing.KEY_FILE, str(made.file.with_name("key")))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return replace(made, folder=shutil.copytree(made.folder, tmp_path / "run"))


both_kinds = pytest.mark.parametrize("own", ["algorithm", "environment"], indirect=True)
algorithm = pytest.mark.parametrize("own", ["algorithm"], indirect=True)
environment = pytest.mark.parametrize("own", ["environment"], indirect=True)


# -------------------------------------------------------------------------------------------------- both kinds of files
EDITS = {
    "pessimist.py": ("- self.pessimism", "+ self.pessimism", "algorithm.from.sha256"),
    "mine.py": ("1.0, False", "2.0, False", "environment.sha256"),
}


@both_kinds
def test_resume_with_edited_user_file_requires_accept_changes(own: UserFile, duetto: Command):
    old, new, changed = EDITS[own.file.name]
    assert old in own.text
    own.file.write_text(own.text.replace(old, new), "utf-8")
    code, _, err = duetto("resume", own.folder, "--steps", "70")
    assert code == 2
    sentence = "or a custom file has changed since the checkpoint at step 60. The changes affect results: "
    assert f"{sentence}{changed}" in err
    assert "--accept-changes" in err
    if own.file.name == "pessimist.py":
        assert [changed in notice for notice in package.load(own.folder).notices] == [True]
        assert changed in duetto("evaluate", own.folder, "--episodes", "1").done().err
    out = duetto("resume", own.folder, "--steps", "70", "--accept-changes").done().out
    assert f"Changed since the checkpoint at step 60: {changed} was" in " ".join(out.split())
    assert duetto("resume", own.folder, "--steps", "80").code == 0  # the newest checkpoint is from the edited file


@both_kinds
def test_user_file_of_unsigned_run_is_not_executed(
    own: UserFile, duetto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mark = tmp_path / "mark"
    own.file.write_text(f"open({str(mark)!r}, 'w').close()\n" + own.text, "utf-8")
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "other"))
    is_algorithm = own.file.name == "pessimist.py"
    named = f"runs '{own.file}' (Pessimist)" if is_algorithm else f"imports or runs '{own.file}:Mine'"
    commands = [("resume",), ("evaluate",), ("video",)]
    if is_algorithm:
        commands.append(("demos", "record", "Pendulum-v1", "--output", "demos", "--expert"))
    for command in commands:
        code, _, err = duetto(*command, own.folder)
        assert (code, f"{named}, and it was not started by you" in err, "--trust" in err) == (2, True, True)
    if is_algorithm:
        with pytest.raises(UsageError, match="not started by you"):
            package.load(own.folder)
    assert not mark.exists()


@both_kinds
def test_resume_names_a_deleted_user_file(own: UserFile, duetto: Command):
    cls = user_code.named(f"{own.file}:Pessimist")[0] if own.file.name == "pessimist.py" else None
    own.file.unlink()
    code, _, err = duetto("resume", own.folder, "--steps", "70")
    assert code == 2
    assert f"{own.file} cannot be read: No such file or directory. A run that was started with it needs it" in err
    assert package.load(own.folder, algorithm=cls).step == 60


# ---------------------------------------------------------------------------------------------------- an algorithm
@algorithm
def test_custom_algorithm_is_recorded_resumed_and_evaluated(own: UserFile, duetto: Command):
    recorded = yaml.safe_load((own.folder / "config.yaml").read_text("utf-8"))["algorithm"]
    assert (recorded["name"], recorded["pessimism"]) == ("pessimist", 0.25)
    assert (recorded["from"]["class"], recorded["from"]["file"]) == ("Pessimist", str(own.file.resolve()))
    assert len(recorded["from"]["sha256"]) == 64
    assert "how many standard deviations are subtracted" in duetto("train", own.words[0], "--help").out
    out = duetto("resume", own.folder, "--steps", "70").printed()
    assert out.startswith("pessimist on Pendulum-v1, torch on cpu, seed 0, preset default, 70 steps\n")
    assert duetto("evaluate", own.folder, "--episodes", "1").code == 0
    assert package.load(own.folder).step == Run(own.folder).agent().step == 70


@algorithm
def test_presets_are_read_beside_the_algorithm_file(own: UserFile, duetto: Command):
    presets = own.file.with_suffix(".yaml")
    presets.write_text("Pendulum-v1: {algorithm: {pessimism: 2.0}}\nbold: {algorithm: {pessimism: 0.0}}")
    plan = ("train", *own.words, "--dry-run")
    planned = [yaml.safe_load(duetto(*plan, *preset).printed()) for preset in ((), ("--preset", "bold"))]
    assert [config["algorithm"]["pessimism"] for config in planned] == [2.0, 0.0]
    code, _, err = duetto(*plan, "--preset", "bald")
    assert (code, err) == (2, "duetto: pessimist has no preset 'bald'. Did you mean 'bold'?\n")
    presets.write_text("bold: {algorithms: {pessimism: 0.0}}")
    assert "The presets in " in duetto(*plan).err
    presets.unlink()


@algorithm
@pytest.mark.parametrize("check", ["resuming", pytest.param(None, marks=pytest.mark.slow)])
def test_example_algorithm_passes_check_algorithm(own: UserFile, check: str | None):
    check_algorithm(user_code.named(f"{own.file}:Pessimist")[0], *([check] if check else []))


@algorithm
def test_changed_path_of_algorithm_file_requires_trust(own: UserFile, duetto: Command):
    """The signature covers the path and the class."""
    other = shutil.copy(own.file, own.file.with_name("other.py"))
    config = own.folder / "config.yaml"
    config.write_text(config.read_text("utf-8").replace(str(own.file), str(other)), "utf-8")
    assert "not started by you" in duetto("resume", own.folder, "--steps", "70").err
    assert duetto("resume", own.folder, "--steps", "70", "--trust").code == 0
    assert duetto("resume", own.folder, "--steps", "80").code == 0  # --trust signed it


@pytest.mark.parametrize(
    ("text", "call", "sentence"),
    [
        ("", "pessimist.py:Pesimist", "has no class 'Pesimist'. Did you mean 'Pessimist'?"),
        ("", "pessimist.py", "Say which class of pessimist.py is the algorithm: pessimist.py:NAME. It has: Pessimist"),
        ("", "pesimist.py:Pessimist", "pesimist.py cannot be read: No such file or directory."),
        ("x = 5", "pessimist.py:x", "has no class 'x'. It has: Pessimist."),
        ("def x(): ...", "pessimist.py:x", "has no algorithm (a subclass of duetto.algorithms.Algorithm) 'x'."),
        ("1 / 0", "pessimist.py:Pessimist", "does not run, line 58: ZeroDivisionError: division by zero"),
        ("def", "pessimist.py:Pessimist", "does not run: SyntaxError: "),
        (
            "class B(Pessimist):\n    b: int = 1",
            "pessimist.py:B",
            "{}: B sets b without declaring an option. Write `name: type = value`, and @",
        ),
        ("@dataclass(frozen=True)\nclass B(Pessimist):\n    members: Count = 0", "pessimist.py:B", "members is 0"),
    ],
)
def test_mistakes_in_custom_algorithm_are_reported(
    duetto: Command, tmp_path: Path, text: str, call: str, sentence: str
):
    file = tmp_path / "pessimist.py"
    file.write_text(example_algorithm() + text, "utf-8")
    code, out, err = duetto("train", call, "Pendulum-v1")
    assert (code, out) == (2, "")
    assert sentence.replace("{}", str(file)) in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


# ---------------------------------------------------------------------------------------------------- from Python
class Mine(TD3):
    """An algorithm that is passed as a class."""


class NamedLikeTD3(TD3):
    """An algorithm with the name of a built-in one."""

    @classmethod
    def name(cls) -> str:
        return "td3"


@pytest.mark.parametrize("kind", [Mine, NamedLikeTD3], ids=["new name", "name of a built-in algorithm"])
def test_run_of_algorithm_class_must_get_that_class(tmp_path: Path, kind: type[TD3]):
    small = {"hidden": (8,), "batch_size": 4, "random_steps": 5, "learning_starts": 5, "replay_capacity": 50}
    run = package.train(kind(**small), "Pendulum-v1", steps=20, backend="torch", evaluate_every=0, runs_dir=tmp_path)
    assert run.agent().step == 20
    with pytest.raises(UsageError, match=rf"passed in Python.*duetto\.Run\(path, algorithm={kind.__name__}\)"):
        Run(run.path)
    again = Run(run.path, algorithm=kind).resume(30)
    assert (type(again.config.algorithm), again.agent().step) == (kind, 30)
    with pytest.raises(UsageError, match="its algorithm is"):
        Run(run.path, algorithm=package.DDPG)


@algorithm
def test_model_card_command_uses_the_readers_algorithm_file(
    own: UserFile, duetto: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The reader has another key, and the file at another path."""
    sent = tmp_path / "hub" / "x"
    assert duetto("push", own.folder, "me/x", "--dry-run", "--episodes", "1", "--no-video").code == 0
    card = (sent / "README.md").read_text()
    assert "# Pessimist on `Pendulum-v1`" in card
    assert "name: Pessimist" in card
    assert "Not sent here: Algorithm: the class Pessimist in pessimist.py." in card
    (line,) = re.findall(r"^duetto (train .*)$", card, re.MULTILINE)
    assert line == "train pessimist.py:Pessimist --config x/config.yaml"
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "other"))
    (tmp_path / "x").symlink_to(sent)
    file = Path(shutil.copy(own.file, tmp_path))
    assert duetto(*line.split(), "--name", "again").code == 0
    origin = Run("runs/again").config.origin
    assert origin is not None
    assert origin.file == str(file.resolve())
    assert yaml.safe_load(Path("runs/again/config.yaml").read_text())["algorithm"]["pessimism"] == 0.25


# ---------------------------------------------------------------------------------------------------- an environment
@environment
def test_custom_environment_is_resumed_evaluated_and_recorded(
    own: UserFile, duetto: Command, monkeypatch: pytest.MonkeyPatch
):
    recorded = yaml.safe_load((own.folder / "config.yaml").read_text("utf-8"))["environment"]
    assert (recorded["id"], recorded["remakeable"], len(recorded["sha256"])) == (f"{own.file}:Mine", True, 64)
    monkeypatch.chdir(own.file.parent)
    out = duetto("resume", own.folder, "--steps", "70").printed()
    assert out.startswith("td3 on mine.py:Mine, torch on cpu")
    assert "See it: duetto video" not in out  # it has no render mode
    evaluate = ("evaluate", own.folder, "--episodes", "2", "--json")
    assert json.loads(duetto(*evaluate).out)["returns"] == [5.0, 5.0]
    shorter = duetto(*evaluate, "--environment", "mine.py:Mine", "--environment-options", "length=3")
    assert json.loads(shorter.out)["returns"] == [3.0, 3.0]
    assert "cannot be shown" not in duetto("video", own.folder).err  # it has no render mode at all
    demos = ("--output", own.folder.with_name("demos"), "--episodes", "2", "--checkpoint", "last")
    duetto("demos", "record", "mine.py:Mine", "--expert", own.folder, *demos).printed()
    out = duetto("sweep", "td3", "./mine.py:Mine", "--seeds", "1", "--dry-run", "--json").done().out
    assert "td3-mine.py-Mine-s0" in out


@environment
def test_packed_environment_class_needs_no_file(own: UserFile):
    packed = pack(f"{own.file}:Mine", {})
    own.file.unlink()
    ActorRole(packed, TD3(), "torch", "float32", 1, 1)(range(1)).close()


def test_missing_environment_module_is_reported(duetto: Command):
    code, _, err = duetto("train", "td3", "found_nowhere:HereAlone-v0")
    assert code == 2
    assert "cannot be made: ModuleNotFoundError: No module named 'found_nowhere'" in err
    assert err.endswith("for a file, write ./FILE.py:NAME.\n")
