"""An algorithm of the user's own, from a file: the one of docs/extending.md, as a reader of it would try it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from commands import SMALL, Command, Result

import duetto as package
from duetto.algorithms import TD3
from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.storage import signing, user_code
from duetto.testing import check_algorithm

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FOLDER = "runs/pessimist-Pendulum-v1-s0"


def example() -> str:
    found = re.search(r"<!-- file: pessimist\.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "key"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pessimist.py"
    path.write_text(example(), "utf-8")
    return path


@pytest.fixture
def begin(duetto: Command, file: Path) -> Command:
    def call(*arguments: str, algorithm: str = "./pessimist.py:Pessimist") -> Result:
        return duetto("train", algorithm, "Pendulum-v1", "--steps", "60", *SMALL, *arguments)

    return call


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


# ---------------------------------------------------------------------------------------------------- a run of it
def test_it_trains_and_goes_on_and_acts(begin: Command, duetto: Command, file: Path):
    code, out, err = begin("--pessimism", "0.25")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "pessimist on Pendulum-v1, torch on cpu, seed 0, preset default, 60 steps",
        f"{FOLDER}/",
    ]
    said = yaml.safe_load(Path(FOLDER, "config.yaml").read_text("utf-8"))["algorithm"]
    assert (said["name"], said["pessimism"]) == ("pessimist", 0.25)
    assert (said["from"]["class"], said["from"]["file"]) == ("Pessimist", str(file.resolve()))
    assert len(said["from"]["sha256"]) == 64
    assert duetto("resume", FOLDER, "--steps", "70").code == 0
    assert duetto("evaluate", FOLDER, "--episodes", "1").code == 0
    assert package.load(FOLDER).step == Run(FOLDER).agent().step == 70


def test_what_is_interrupted_ends_as_what_is_not(begin: Command, duetto: Command):
    assert begin("--name", "whole").code == 0
    assert begin("--name", "parts", "--steps", "37").code == 0
    assert duetto("resume", "runs/parts", "--steps", "60").code == 0
    assert package.load("runs/whole").fingerprint == package.load("runs/parts").fingerprint


def test_its_options_are_in_the_help(duetto: Command, file: Path):
    code, out, _ = duetto("train", "./pessimist.py:Pessimist", "--help")
    assert code == 0
    assert "--pessimism" in out
    assert "how many standard deviations are subtracted" in out


def test_presets_lie_beside_it(begin: Command, file: Path):
    file.with_suffix(".yaml").write_text(
        "Pendulum-v1: {algorithm: {pessimism: 2.0}}\nbold: {algorithm: {pessimism: 0.0}}"
    )
    assert (begin().code, begin("--preset", "bold", "--name", "bold").code) == (0, 0)
    assert [Run(folder).config.algorithm.pessimism for folder in (FOLDER, "runs/bold")] == [2.0, 0.0]
    code, _, err = begin("--preset", "bald")
    assert (code, err) == (
        2,
        "duetto: pessimist has no preset 'bald'. Did you mean 'bold'? It has: default, Pendulum-v1, bold.\n",
    )
    file.with_suffix(".yaml").write_text("bold: {algorithms: {pessimism: 0.0}}")
    assert "The presets in " in begin().err


@pytest.mark.parametrize("check", ["refusals", "resuming", "state"])
def test_it_conforms(file: Path, check: str):
    check_algorithm(user_code.from_file(file, "Pessimist")[0], check)


@pytest.mark.slow
def test_it_conforms_in_everything(file: Path):
    check_algorithm(user_code.from_file(file, "Pessimist")[0])


# ---------------------------------------------------------------------------------------------------- an edited file
def test_an_edited_file_is_said_and_wants_a_word(begin: Command, duetto: Command, file: Path):
    assert begin().code == 0
    before = Run(FOLDER).config.origin
    edit(file, "- self.pessimism", "+ self.pessimism")
    code, _, err = duetto("resume", FOLDER, "--steps", "70")
    assert code == 2
    assert (
        "or a custom file has changed since the checkpoint at step 60, in what decides the numbers: algorithm." in err
    )
    assert "--accept-changes" in err
    assert ["algorithm.from.sha256" in notice for notice in package.load(FOLDER).notices] == [True]
    code, out, _ = duetto("resume", FOLDER, "--steps", "70", "--accept-changes")
    assert code == 0
    assert "Changed since the checkpoint at step 60: algorithm.from.sha256" in " ".join(out.split())
    recorded = yaml.safe_load(Path(FOLDER, "config.yaml").read_text("utf-8"))["algorithm"]["from"]["sha256"]
    assert before is not None
    assert recorded != before.checksum
    assert duetto("resume", FOLDER, "--steps", "80").code == 0  # from here on it is the file of the checkpoint


# ---------------------------------------------------------------------------------------------------- strangers
@pytest.mark.parametrize("command", ["resume", "evaluate", "video"])
def test_a_strangers_file_is_not_run(
    begin: Command, duetto: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    assert begin().code == 0
    mark = tmp_path / "mark"
    file.write_text(f"open({str(mark)!r}, 'w').close()\n" + example(), "utf-8")
    monkeypatch.setenv(signing.KEY_FILE, str(tmp_path / "other"))
    code, _, err = duetto(command, FOLDER)
    assert code == 2
    assert f"runs '{file}' (Pessimist), and it was not started by you" in err
    assert "--trust" in err
    assert not mark.exists()
    with pytest.raises(UsageError, match="not started by you"):
        package.load(FOLDER)
    assert not mark.exists()


def test_another_file_in_its_place_is_not_run(begin: Command, duetto: Command, file: Path):
    """The signature is of the path and the class: one cannot be taken for another file."""
    assert begin().code == 0
    other = shutil.copy(file, file.with_name("other.py"))
    config = Path(FOLDER, "config.yaml")
    config.write_text(config.read_text("utf-8").replace(str(file), str(other)), "utf-8")
    assert "not started by you" in duetto("resume", FOLDER, "--steps", "70").err
    assert duetto("resume", FOLDER, "--steps", "70", "--trust").code == 0
    assert duetto("resume", FOLDER, "--steps", "80").code == 0  # it is signed now


# ---------------------------------------------------------------------------------------------------- mistakes
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
        ("1 / 0", "pessimist.py:Pessimist", "does not run, line 52: ZeroDivisionError: division by zero"),
        ("def", "pessimist.py:Pessimist", "does not run: SyntaxError: "),
        (
            "class B(Pessimist):\n    b: int = 1",
            "pessimist.py:B",
            "{}: B has fields (b) but is no dataclass: put @",
        ),
        (
            "@dataclass(frozen=True)\nclass B(Pessimist):\n    tau = 0.5",
            "pessimist.py:B",
            "{}: B sets tau without a type, so it changes no option: write `tau: Fraction = 0.5`.",
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


def test_a_file_that_is_gone(begin: Command, duetto: Command, file: Path):
    assert begin().code == 0
    kind, _ = user_code.from_file(file, "Pessimist")
    file.unlink()
    code, _, err = duetto("resume", FOLDER)
    assert code == 2
    assert f"its algorithm's file {file} is missing. Put it back" in err
    assert package.load(FOLDER, algorithm=kind).step == 60


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
