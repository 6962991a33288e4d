"""An algorithm and an environment of the user's own, each from a file: trained, resumed, edited, gone, a stranger's.

The algorithm is the one of docs/extending.md, as a reader of it would try it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from commands import SMALL, Command, Result

import duetto as package
from duetto.algorithms import TD3
from duetto.cluster.actor import ActorRole, pack
from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.storage import signing, user_code
from duetto.testing import check_algorithm

FOLDER = "runs/pessimist-Pendulum-v1-s0"
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


def example() -> str:
    found = re.search(r"<!-- file: pessimist\.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


@dataclass
class Own:
    """A file of the user's, a command that trains with it, and its run's folder."""

    file: Path
    text: str
    folder: str
    train: Callable[..., Result]


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def make(duetto: Command, tmp_path: Path) -> Callable[[str], Own]:
    def made(kind: str) -> Own:
        name, text = ("pessimist.py", example()) if kind == "algorithm" else ("mine.py", ENVIRONMENT)
        words = ("./pessimist.py:Pessimist", "Pendulum-v1") if kind == "algorithm" else ("td3", "./mine.py:Mine")
        folder = FOLDER if kind == "algorithm" else "runs/td3-mine.py-Mine-s0"
        (tmp_path / name).write_text(text, "utf-8")
        return Own(tmp_path / name, text, folder, lambda *more: duetto("train", *words, "--steps", "60", *SMALL, *more))

    return made


@pytest.fixture
def file(make: Callable[[str], Own]) -> Path:
    return make("algorithm").file


@pytest.fixture
def begin(make: Callable[[str], Own]) -> Callable[..., Result]:
    return make("algorithm").train


# ---------------------------------------------------------------------------------------------------- either of them
EDITS = {
    "algorithm": ("- self.pessimism", "+ self.pessimism", "algorithm.from.sha256"),
    "environment": ("1.0, False", "2.0, False", "environment.sha256"),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edited_file_is_said_and_wants_a_word(make: Callable[[str], Own], duetto: Command, kind: str):
    own, (old, new, changed) = make(kind), EDITS[kind]
    assert own.train().code == 0
    assert old in own.text
    own.file.write_text(own.text.replace(old, new), "utf-8")
    code, _, err = duetto("resume", own.folder, "--steps", "70")
    assert code == 2
    sentence = "or a custom file has changed since the checkpoint at step 60, in what decides the numbers: "
    assert f"{sentence}{changed}" in err
    assert "--accept-changes" in err
    if kind == "algorithm":
        assert [changed in notice for notice in package.load(own.folder).notices] == [True]
    out = duetto("resume", own.folder, "--steps", "70", "--accept-changes").done().out
    assert f"Changed since the checkpoint at step 60: {changed} was" in " ".join(out.split())
    assert duetto("resume", own.folder, "--steps", "80").code == 0  # from here on it is the file of the checkpoint


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("command", ["resume", "evaluate", "video"])
def test_a_strangers_file_is_not_run(
    make: Callable[[str], Own],
    duetto: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    command: str,
):
    own, mark = make(kind), tmp_path / "mark"
    assert own.train().code == 0
    own.file.write_text(f"open({str(mark)!r}, 'w').close()\n" + own.text, "utf-8")
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "other"))
    code, _, err = duetto(command, own.folder)
    assert code == 2
    named = f"runs '{own.file}' (Pessimist)" if kind == "algorithm" else f"imports or runs '{own.file}:Mine'"
    assert f"{named}, and it was not started by you" in err
    assert "--trust" in err
    if kind == "algorithm":
        with pytest.raises(UsageError, match="not started by you"):
            package.load(own.folder)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["algorithm", "environment"])
def test_a_file_that_is_gone(make: Callable[[str], Own], duetto: Command, kind: str):
    own = make(kind)
    assert own.train().code == 0
    cls = user_code.named(f"{own.file}:Pessimist")[0] if kind == "algorithm" else None
    own.file.unlink()
    code, _, err = duetto("resume", own.folder, "--steps", "70")
    assert code == 2
    assert f"{own.file} cannot be read: No such file or directory. A run that started with it needs it" in err
    assert package.load(own.folder, algorithm=cls).step == 60


# ---------------------------------------------------------------------------------------------------- an algorithm
def test_it_trains_and_goes_on_and_acts(begin: Command, duetto: Command, file: Path):
    out = begin("--pessimism", "0.25").printed()
    assert out.splitlines()[:2] == [
        "pessimist on Pendulum-v1, torch on cpu, seed 0, preset default, 60 steps",
        f"{FOLDER}/",
    ]
    said = yaml.safe_load(Path(FOLDER, "config.yaml").read_text("utf-8"))["algorithm"]
    assert (said["name"], said["pessimism"]) == ("pessimist", 0.25)
    assert (said["from"]["class"], said["from"]["file"]) == ("Pessimist", str(file.resolve()))
    assert len(said["from"]["sha256"]) == 64
    assert "how many standard deviations are subtracted" in duetto("train", "./pessimist.py:Pessimist", "--help").out
    assert duetto("resume", FOLDER, "--steps", "70").code == 0
    assert duetto("evaluate", FOLDER, "--episodes", "1").code == 0
    assert package.load(FOLDER).step == Run(FOLDER).agent().step == 70


def test_what_is_interrupted_ends_as_what_is_not(begin: Command, duetto: Command):
    assert begin("--name", "whole").code == 0
    assert begin("--name", "parts", "--steps", "37").code == 0
    assert duetto("resume", "runs/parts", "--steps", "60").code == 0
    assert package.load("runs/whole").fingerprint == package.load("runs/parts").fingerprint


def test_presets_lie_beside_it(begin: Command, file: Path):
    file.with_suffix(".yaml").write_text(
        "Pendulum-v1: {algorithm: {pessimism: 2.0}}\nbold: {algorithm: {pessimism: 0.0}}"
    )
    assert (begin().code, begin("--preset", "bold", "--name", "bold").code) == (0, 0)
    assert [Run(folder).config.algorithm.pessimism for folder in (FOLDER, "runs/bold")] == [2.0, 0.0]
    code, _, err = begin("--preset", "bald")
    assert (code, err) == (2, "duetto: pessimist has no preset 'bald'. Did you mean 'bold'?\n")
    file.with_suffix(".yaml").write_text("bold: {algorithms: {pessimism: 0.0}}")
    assert "The presets in " in begin().err


@pytest.mark.parametrize("check", ["refusals", "resuming", "state"])
def test_it_conforms(file: Path, check: str):
    check_algorithm(user_code.named(f"{file}:Pessimist")[0], check)


@pytest.mark.slow
def test_it_conforms_in_everything(file: Path):
    check_algorithm(user_code.named(f"{file}:Pessimist")[0])


def test_another_file_in_its_place_is_not_run(begin: Command, duetto: Command, file: Path):
    """The signature is of the path and the class: one cannot be taken for another file."""
    assert begin().code == 0
    other = shutil.copy(file, file.with_name("other.py"))
    config = Path(FOLDER, "config.yaml")
    config.write_text(config.read_text("utf-8").replace(str(file), str(other)), "utf-8")
    assert "not started by you" in duetto("resume", FOLDER, "--steps", "70").err
    assert duetto("resume", FOLDER, "--steps", "70", "--trust").code == 0
    assert duetto("resume", FOLDER, "--steps", "80").code == 0  # it is signed now


@pytest.mark.parametrize(
    ("text", "call", "sentence"),
    [
        ("", "pessimist.py:Pesimist", "has no class 'Pesimist'. Did you mean 'Pessimist'?"),
        (
            "",
            "pessimist.py",
            "Say which class of pessimist.py is the algorithm: pessimist.py:CLASS. It has: Pessimist.",
        ),
        ("", "pesimist.py:Pessimist", "pesimist.py cannot be read: No such file or directory."),
        ("x = 5", "pessimist.py:x", "has no class 'x'. It has: Pessimist."),
        ("def x(): ...", "pessimist.py:x", "has no algorithm (a subclass of duetto.algorithms.Algorithm) 'x'."),
        ("1 / 0", "pessimist.py:Pessimist", "does not run, line 53: ZeroDivisionError: division by zero"),
        ("def", "pessimist.py:Pessimist", "does not run: SyntaxError: "),
        (
            "class B(Pessimist):\n    b: int = 1",
            "pessimist.py:B",
            "{}: B sets b, which is no option yet: write `name: type = value`, and @",
        ),
        (
            "@dataclass(frozen=True)\nclass B(Pessimist):\n    tau = 0.5",
            "pessimist.py:B",
            "{}: B sets tau, which is no option yet: write `name: type = value`",
        ),
        ("@dataclass(frozen=True)\nclass B(Pessimist):\n    members: Count = 0", "pessimist.py:B", "members is 0"),
    ],
)
def test_mistakes_are_a_sentence(duetto: Command, file: Path, text: str, call: str, sentence: str):
    file.write_text(example() + text, "utf-8")
    code, out, err = duetto("train", call, "Pendulum-v1")
    assert (code, out) == (2, "")
    assert sentence.replace("{}", str(file)) in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


# ---------------------------------------------------------------------------------------------------- from Python
class Mine(TD3):
    """Handed over as a class."""


class Another(TD3):
    """Not that one."""

    @classmethod
    def name(cls) -> str:
        return "td3"


@pytest.mark.parametrize("kind", [Mine, Another], ids=["a new name", "the name of Duetto's own"])
def test_a_class_that_was_handed_over_is_handed_over_again(tmp_path: Path, kind: type[TD3]):
    small = {"hidden": (8,), "batch_size": 4, "random_steps": 5, "learning_starts": 5, "replay_capacity": 50}
    run = package.train(kind(**small), "Pendulum-v1", steps=20, backend="torch", evaluate_every=0, runs_dir=tmp_path)
    assert run.agent().step == 20
    with pytest.raises(UsageError, match=rf"passed in Python.*duetto\.Run\(path, algorithm={kind.__name__}\)"):
        Run(run.path)
    again = Run(run.path, algorithm=kind).resume(30)
    assert (type(again.config.algorithm), again.agent().step) == (kind, 30)
    with pytest.raises(UsageError, match="it is of the algorithm"):
        Run(run.path, algorithm=package.DDPG)


def test_a_strangers_config_takes_the_class_that_the_call_names(
    begin: Command, duetto: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As the card of a pushed run says it: the file is not there, and nobody signed it here."""
    assert begin("--pessimism", "0.25").code == 0
    sent = tmp_path / "hub" / "x"
    assert duetto("push", FOLDER, "me/x", "--dry-run", "--episodes", "1", "--no-video").code == 0
    card = (sent / "README.md").read_text()
    assert "# Pessimist on `Pendulum-v1`" in card
    assert "name: Pessimist" in card
    assert "Not sent here: Algorithm: the class Pessimist in pessimist.py." in card
    (line,) = re.findall(r"^duetto (train .*)$", card, re.MULTILINE)
    assert line == "train pessimist.py:Pessimist --config x/config.yaml"
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "other"))
    (tmp_path / "x").symlink_to(sent)
    assert duetto(*line.split(), "--name", "again").code == 0
    origin = Run("runs/again").config.origin
    assert origin is not None
    assert origin.file == str(file.resolve())
    assert yaml.safe_load(Path("runs/again/config.yaml").read_text())["algorithm"]["pessimism"] == 0.25


# ---------------------------------------------------------------------------------------------------- an environment
def test_it_trains_goes_on_from_elsewhere_and_is_evaluated(
    make: Callable[[str], Own], duetto: Command, monkeypatch: pytest.MonkeyPatch
):
    own = make("environment")
    out = own.train("--num-envs", "2", "--vectorization", "subprocess").printed()
    assert out.splitlines()[0].startswith("td3 on mine.py:Mine, torch on cpu")
    said = yaml.safe_load(Path(own.folder, "config.yaml").read_text("utf-8"))["environment"]
    assert (said["id"], said["remakeable"], len(said["sha256"])) == (f"{own.file}:Mine", True, 64)
    (own.file.parent / "elsewhere").mkdir()
    monkeypatch.chdir(own.file.parent / "elsewhere")
    folder = f"../{own.folder}"
    assert duetto("resume", folder, "--steps", "70").code == 0
    code, out, _ = duetto("evaluate", folder, "--episodes", "2", "--json")
    assert (code, json.loads(out)["returns"]) == (0, [5.0, 5.0])
    other = duetto(
        *("evaluate", folder, "--episodes", "1", "--json", "--environment", "../mine.py:Mine"),
        *("--environment-options", "length=3"),
    )
    assert json.loads(other.out)["returns"] == [3.0]
    assert "cannot be shown" not in duetto("video", folder).err  # the message says that it draws nothing


def test_sweep_tune_and_demonstrations_take_it(make: Callable[[str], Own], duetto: Command):
    own = make("environment")
    out = duetto("sweep", "td3", "./mine.py:Mine", "--seeds", "1", "--dry-run", "--json").done().out
    assert "td3-mine.py-Mine-s0" in out
    short = [*SMALL, "--steps", "30", "--trials", "1", "--seeds", "1", "--quiet"]
    assert duetto("tune", "td3", "mine.py:Mine", *short).code == 0
    [study] = Path("studies").iterdir()
    assert study.name == "td3-mine.py-Mine"
    assert own.train().code == 0
    code, _, err = duetto(
        *("demos", "record", "mine.py:Mine", "--expert", own.folder, "--output", "demos", "--episodes", "2"),
        *("--checkpoint", "last"),
    )
    assert (code, err) == (0, "")


@pytest.mark.parametrize("text", ["a.py:B", "a.py", "/a/b.py:", "C:\\a.py:B"])
def test_whatever_runs_a_file_needs_trust(text: str):
    assert user_code.is_file(text)
    assert signing.needs_trust(text, {})


def test_another_machine_gets_the_class_and_needs_no_file(make: Callable[[str], Own]):
    own = make("environment")
    packed = pack(f"{own.file}:Mine", {})
    own.file.unlink()
    ActorRole(packed, TD3(), "torch", "float32", 1, 1)(range(1)).close()


def test_a_module_that_is_not_found(duetto: Command):
    code, _, err = duetto("train", "td3", "found_nowhere:HereAlone-v0")
    assert code == 2
    assert "cannot be made: ModuleNotFoundError: No module named 'found_nowhere'" in err
    assert err.endswith("for a file, write ./FILE.py:CLASS.\n")
