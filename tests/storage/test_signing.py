"""Whose environments are imported: the user's own, without a word; a stranger's, with the user's word only."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import yaml
from small_runs import CrashAt, CrashError, train

from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.storage import signing
from duetto.tools.cli import main

MODULE = """
import gymnasium
from pathlib import Path
Path({mark!r}).write_text("imported")
gymnasium.register("Brought-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=20)
"""
ID = "brought_along:Brought-v0"


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "duetto" / "key"
    monkeypatch.setenv(signing.KEY_FILE, str(path))
    return path


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is there once the module was imported."""
    mark, modules = tmp_path / "mark", tmp_path / "modules"
    modules.mkdir()
    (modules / "brought_along.py").write_text(MODULE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(modules)
    yield mark
    forget(mark)


@pytest.fixture
def mine(tmp_path: Path, mark: Path) -> Path:
    path = train(tmp_path, environment=ID, steps=40, evaluate_every=0).path
    forget(mark)
    return path


def forget(mark: Path) -> None:
    mark.unlink(missing_ok=True)
    sys.modules.pop("brought_along", None)
    gymnasium.registry.pop("Brought-v0", None)


def test_ones_own_run_is_never_asked_about(mine: Path, mark: Path):
    moved = mine.rename(mine.parent / "elsewhere")
    Run(moved).evaluate(1)
    assert mark.exists()
    assert Run(moved).resume(steps=60).config.signature == Run(moved).config.signature


@pytest.mark.parametrize("command", ["evaluate", "resume", "video"])
def test_a_strangers_module_is_not_imported(
    command: str, mine: Path, mark: Path, key: Path, capsys: pytest.CaptureFixture[str]
):
    key.unlink()
    with pytest.raises(SystemExit) as ended:
        main([command, str(mine)])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "--trust" in said
    assert ID in said
    assert not mark.exists()
    assert not key.exists()  # nothing is to be signed
    with pytest.raises(SystemExit) as ended:
        main([command, str(mine), "--trust"])
    assert ended.value.code == 0
    assert mark.exists()


def test_a_run_resumed_with_trust_is_ones_own(mine: Path, mark: Path, key: Path):
    key.unlink()
    Run(mine, trust=True).resume(steps=60)
    forget(mark)
    Run(mine).evaluate(1)
    assert mark.exists()


@pytest.mark.parametrize(
    "change", [{"id": "brought_along:Other-v0"}, {"options": {"g": 9.0}}, {"signature": 5}, {"signature": "é"}]
)
def test_what_was_signed_is_what_is_made(change: dict[str, object], mine: Path, mark: Path):
    path = mine / "config.yaml"
    values = yaml.safe_load(path.read_text("utf-8"))
    (values if "signature" in change else values["environment"]).update(change)
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(UsageError, match="--trust"):
        Run(mine).evaluate(1)
    assert not mark.exists()


@pytest.mark.parametrize("options", [{"env_id": "a:B-v0"}, {"inner": [{"a": "b:c"}]}, {"a:b": 1}])
def test_an_option_can_name_a_module_too(options: dict[str, object]):
    assert signing.needs_trust("CartPole-v1", options)
    listed = signing.references("CartPole-v1", options)
    with pytest.raises(UsageError, match="--trust"):
        signing.check(listed, None, "a folder", "environment")
    signing.check(listed, signing.sign(listed), "a folder", "environment")


@pytest.mark.parametrize("change", [{"algorithm": ("mine.py", "Other")}, {"algorithm": None}, {"folder": "another"}])
def test_one_signature_covers_all_references(change: dict[str, Any]):
    named: dict[str, Any] = {"environment": ID, "options": {}, "algorithm": ("mine.py", "Mine"), "folder": "other"}
    listed = signing.references(**named)
    assert [kind for kind, _, _ in listed] == ["algorithm", "environment", "from"]
    assert signing.is_ours(listed, signing.sign(listed))
    assert not signing.is_ours(signing.references(**named | change), signing.sign(listed))


def test_editing_the_steps_by_hand_needs_no_trust(mine: Path, mark: Path):
    path = mine / "config.yaml"
    path.write_text(path.read_text("utf-8").replace("steps: 40\n", "steps: 60\n"))
    assert Run(mine).resume().config.run.steps == 60
    assert mark.exists()


def test_the_key_is_the_users_alone(key: Path):
    listed = signing.references(ID, {})
    assert signing.sign(listed) == signing.sign(listed)
    assert len(key.read_bytes()) == 32
    assert [path.name for path in key.parent.iterdir()] == ["key"]
    if sys.platform != "win32":
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_without_a_key_the_run_says_so(tmp_path: Path, mark: Path, key: Path):
    key.parent.parent.write_text("a file where the folder should be")
    said: list[str] = []
    run = train(
        tmp_path, environment=ID, steps=40, evaluate_every=0, callbacks=[lambda trainer: said.extend(trainer.notices)]
    )
    assert "--trust" in said[0]
    with pytest.raises(UsageError, match="--trust"):
        Run(run.path).evaluate(1)


# ------------------------------------------------------------------------------------------------- other folders
@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run that starts with another one's networks, and has no checkpoint of its own yet."""
    other = train(tmp_path, name="other", evaluate_every=0)
    with pytest.raises(CrashError):
        train(tmp_path, name="begun", from_run=other, steps=40, evaluate_every=0, callbacks=[CrashAt(5)])
    return tmp_path / "begun"


def test_what_another_folder_learned_is_copied_into_ones_own_run_alone(begun: Path, key: Path):
    key.unlink()
    with pytest.raises(UsageError, match=r"copies the networks of .*other', and it was not started by you.*--trust"):
        Run(begun).resume()
    assert not list((begun / "checkpoints").glob("step-*"))
    Run(begun, trust=True).resume()
    assert list((begun / "checkpoints").iterdir())


@pytest.mark.parametrize("began", ["true", "[1]", "elsewhere", "{run: 3}"])
def test_what_it_began_with_is_a_run(begun: Path, began: str):
    config = yaml.safe_load((begun / "config.yaml").read_text())
    (begun / "config.yaml").write_text(yaml.safe_dump(config | {"from": yaml.safe_load(began)}))
    with pytest.raises(UsageError, match=r"from(\.run)? is .*, not a"):
        Run(begun)


# ---------------------------------------------------------------------------------------------- as another's config
def test_a_strangers_config_imports_nothing(mine: Path, mark: Path, key: Path, capsys: pytest.CaptureFixture[str]):
    key.unlink()
    call = [
        "train",
        "td3",
        "--config",
        str(mine / "config.yaml"),
        "--runs-dir",
        str(mine.parent / "new"),
        "--steps",
        "40",
    ]
    with pytest.raises(SystemExit) as ended:
        main(call)
    assert ended.value.code == 2
    assert f"imports or runs '{ID}', and it was not started by you" in capsys.readouterr().err
    assert not mark.exists()
    assert not key.exists()
    with pytest.raises(SystemExit) as ended:
        main([*call[:4], ID, *call[4:]])  # the user's own word
    assert ended.value.code == 0


def test_options_of_a_strangers_config_are_checked_though_the_call_names_the_environment(mine: Path, mark: Path):
    path = mine / "config.yaml"
    values = yaml.safe_load(path.read_text("utf-8"))
    values["environment"] = {"id": "Object", "remakeable": False, "options": {"env_id": ID}}
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(SystemExit) as ended:
        main(
            ["train", "td3", "--config", str(path), "Pendulum-v1", "--runs-dir", str(mine.parent / "new"), "--dry-run"]
        )
    assert ended.value.code == 2
    with pytest.raises(UsageError, match="--trust"):
        Run(mine).config.check_trust("environment", mine)
    assert not mark.exists()
