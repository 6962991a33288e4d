"""Signatures: code named in a run folder runs only if this user wrote or trusts the folder."""

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

MODULE = """
import gymnasium
from pathlib import Path
Path({import_marker!r}).write_text("imported")
gymnasium.register("Brought-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=20)
"""
ID = "brought_along:Brought-v0"


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "duetto" / "key"
    monkeypatch.setenv(signing.KEY_FILE, str(path))
    return path


@pytest.fixture
def import_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a file that importing the module creates."""
    import_marker, modules = tmp_path / "mark", tmp_path / "modules"
    modules.mkdir()
    (modules / "brought_along.py").write_text(MODULE.format(import_marker=str(import_marker)))
    monkeypatch.syspath_prepend(modules)
    yield import_marker
    forget_import(import_marker)


@pytest.fixture
def own_run(tmp_path: Path, import_marker: Path) -> Path:
    path = train(tmp_path, environment=ID, steps=40, evaluate_every=0).path
    forget_import(import_marker)
    return path


def forget_import(import_marker: Path) -> None:
    import_marker.unlink(missing_ok=True)
    sys.modules.pop("brought_along", None)
    gymnasium.registry.pop("Brought-v0", None)


def test_own_run_needs_no_trust(own_run: Path, import_marker: Path, key: Path):
    """Also in another folder, after a resume, or with other steps in its config.yaml."""
    moved = own_run.rename(own_run.parent / "elsewhere")
    Run(moved).evaluate(1)
    assert import_marker.exists()
    path = moved / "config.yaml"
    path.write_text(path.read_text("utf-8").replace("steps: 40\n", "steps: 60\n"))
    assert Run(moved).resume().config.signature == Run(moved).config.signature
    key.unlink()
    with pytest.raises(UsageError, match="--trust"):
        Run(moved).evaluate(1)
    Run(moved, trust=True).resume(steps=80)  # signs the folder
    Run(moved).evaluate(1)


@pytest.mark.parametrize(
    "change", [{"id": "brought_along:Other-v0"}, {"options": {"g": 9.0}}, {"signature": 5}, {"signature": "é"}]
)
def test_changed_environment_needs_trust(change: dict[str, object], own_run: Path, import_marker: Path):
    path = own_run / "config.yaml"
    values = yaml.safe_load(path.read_text("utf-8"))
    (values if "signature" in change else values["environment"]).update(change)
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(UsageError, match="--trust"):
        Run(own_run).evaluate(1)
    assert not import_marker.exists()


@pytest.mark.parametrize("options", [{"env_id": "a:B-v0"}, {"inner": [{"a": "b:c"}]}, {"a:b": 1}])
def test_environment_option_naming_a_module_needs_trust(options: dict[str, object]):
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


def test_only_the_user_can_read_the_key(key: Path):
    listed = signing.references(ID, {})
    assert signing.sign(listed) == signing.sign(listed)
    assert len(key.read_bytes()) == 32
    assert [path.name for path in key.parent.iterdir()] == ["key"]
    if sys.platform != "win32":
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_run_warns_if_no_key_can_be_created(tmp_path: Path, import_marker: Path, key: Path):
    key.parent.parent.write_text("a file where the folder should be")
    said: list[str] = []
    callbacks = [lambda trainer: said.extend(trainer.notices)]
    run = train(tmp_path, environment=ID, steps=40, evaluate_every=0, callbacks=callbacks)
    assert "--trust" in said[0]
    with pytest.raises(UsageError, match="--trust"):
        Run(run.path).evaluate(1)


# ------------------------------------------------------------------------------------------------- other folders
@pytest.fixture
def killed_run(tmp_path: Path) -> Path:
    """Start a run from another run's networks, and kill it before its first checkpoint."""
    other = train(tmp_path, name="other", evaluate_every=0)
    with pytest.raises(CrashError):
        train(tmp_path, name="begun", from_run=other, steps=40, evaluate_every=0, callbacks=[CrashAt(5)])
    return tmp_path / "begun"


def test_copying_networks_of_another_folder_needs_trust(killed_run: Path, key: Path):
    key.unlink()
    with pytest.raises(UsageError, match=r"copies the networks of .*other', and it was not started by you.*--trust"):
        Run(killed_run).resume()
    assert not list((killed_run / "checkpoints").glob("step-*"))
    Run(killed_run, trust=True).resume()
    assert list((killed_run / "checkpoints").iterdir())


# ---------------------------------------------------------------------------------------------- --config
def test_config_of_another_user_imports_nothing(own_run: Path, import_marker: Path, key: Path, command: Any):
    """Unless the command names the environment. Options that name a module need trust in any case."""
    key.unlink()
    path = own_run / "config.yaml"
    options = ["--config", path, "--runs-dir", own_run.parent / "new", "--steps", "40"]
    code, _, err = command("train td3", *options)
    assert (code, f"imports or runs '{ID}', and it was not started by you" in err) == (2, True)
    assert not import_marker.exists()
    assert not key.exists()
    assert command("train td3", ID, *options).code == 0
    forget_import(import_marker)
    values = yaml.safe_load(path.read_text("utf-8"))
    values["environment"] = {"id": "Object", "remakeable": False, "options": {"env_id": ID}}
    path.write_text(yaml.safe_dump(values))
    assert command("train td3 Pendulum-v1", *options, "--dry-run").code == 2
    with pytest.raises(UsageError, match="--trust"):
        Run(own_run).config.check_trust("environment", own_run)
    assert not import_marker.exists()
