"""Pull a run from the Hub, also from a malicious server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import TOKEN, Server, entry

import duetto
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.tools.hub import fetch


@pytest.fixture(scope="module")
def pushed_files(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files that a push of the run would send, by name."""
    folder = tmp_path_factory.mktemp("packed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        duetto.push(trained, "me/run", episodes=1, video=False, dry_run=True)
    folder = folder.parent / "hub" / "run"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def repository_files(server: Server, pushed_files: dict[str, bytes]) -> dict[str, bytes]:
    """Put the run on the server as me/run; return its files, which a test may change."""
    return server.repository("me/run", **pushed_files).files()


def left_behind(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# ---------------------------------------------------------------------------------------------------- valid runs
def test_pulled_run_equals_the_pushed_run(
    repository_files: dict[str, bytes], pushed_files: dict[str, bytes], run: Run, tmp_path: Path
):
    pulled = duetto.pull("me/run")
    assert pulled.path == tmp_path / "runs" / "run"
    found = {path.relative_to(pulled.path).as_posix() for path in pulled.path.rglob("*") if path.is_file()}
    assert found == pushed_files.keys()
    assert oct(pulled.path.stat().st_mode & 0o777) == oct(0o777 & ~_umask())
    assert [path.name for path in Path("runs").iterdir()] == ["run"]
    np.testing.assert_array_equal(pulled.evaluate(2).returns, run.evaluate(2).returns)
    np.testing.assert_array_equal(duetto.load(pulled.path).act([1, 0, 0]), run.agent().act([1, 0, 0]))
    assert duetto.load(pulled.path, "best").step == run.agent("best").step
    assert pulled.evaluations() == run.evaluations()
    assert pulled.metrics() == run.metrics()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_installed_pull_command_reads_environment_variables(
    server: Server, repository_files: dict[str, bytes], pushed_files: dict[str, bytes], tmp_path: Path
):
    """HF_ENDPOINT and HF_TOKEN, in a new process."""
    environment = os.environ | {"HF_ENDPOINT": server.address, "HF_TOKEN": TOKEN}
    call = [sys.executable, "-m", "duetto", "pull", "me/run", "--output", "got", "--json"]
    done = subprocess.run(call, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.keys() == {"repository", "path", "commit", "files", "notices"}
    assert (said["repository"], said["path"]) == ("me/run", "got")
    assert said["files"] == {name: len(data) for name, data in pushed_files.items()}
    assert Path("got/config.yaml").read_bytes() == pushed_files["config.yaml"]


def test_pull_command_prints_files_and_missing_replay_buffer(repository_files: dict[str, bytes], command: Any):
    code, out, err = command("pull", "me/run")
    assert code == 0
    assert "runs/run: 11 files" in out
    assert "See it: duetto video runs/run" in out
    assert "did not send its replay buffer" in err
    assert command("pull", "me/run")[::2] == (
        2,
        "duetto: runs/run exists already, and pull overwrites nothing. Choose another --output.\n",
    )


def test_host_of_large_files_does_not_get_the_token(server: Server, repository_files: dict[str, bytes]):
    server.other_host = True
    assert duetto.pull("me/run", "got").agent().step == 60
    assert server.other_host_tokens == [None, None]


# ---------------------------------------------------------------------------------------------------- malicious content
OUTSIDE = ["../evil", "checkpoints/../../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil", "C:/evil", ""]


def test_file_names_outside_the_folder_are_not_fetched(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path
):
    server.change_listing = lambda entries: entries + [entry(name, b"evil") for name in OUTSIDE]
    duetto.pull("me/run", "deep/got")
    assert not any("evil" in left for left in left_behind(tmp_path))
    assert not any("resolve" in asked and "evil" in asked for asked in server.requests)


def test_pull_skips_files_that_belong_to_no_run(server: Server, repository_files: dict[str, bytes]):
    others = {
        "setup.py": b"evil",
        "checkpoints/step-000000000060/evil.pkl": b"evil",
        "checkpoints/step-60/state.json": b"{}",
        "checkpoints/evil.json": b"{}",
        ".lock": b"",
        "tracking/wandb.txt": b"id",
        "README.md/x": b"",
        "config.yaml\n": b"",
    }
    server.repository("me/run", **repository_files | others)
    pulled = duetto.pull("me/run", "got")
    assert pulled.path.exists()
    assert not any("evil" in name or "lock" in name for name in left_behind(Path("got")))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data + b"x", "sends more of"),
        (lambda data: data[:-1], "Consistency check failed"),
    ],
    ids=["longer", "shorter"],
)
def test_file_that_differs_from_the_listing_is_refused(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path, change: Any, said: str
):
    name = "checkpoints/step-000000000060/state.safetensors"
    server.change_content = lambda path, data: change(data) if path == name else data
    with pytest.raises(DuettoError, match=said):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def change_config_entry(key: str, value: Any) -> Any:
    return lambda entries: [one | {key: value} if one["rfilename"] == "config.yaml" else one for one in entries]


@pytest.mark.parametrize(
    "listed",
    [
        change_config_entry("size", -1),
        change_config_entry("size", "many"),
        change_config_entry("rfilename", 7),
        change_config_entry("lfs", {"size": 1}),
        lambda entries: {"error": "no"},
        lambda entries: [{}],
    ],
)
def test_invalid_file_listing_is_refused(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path, listed: Any
):
    server.change_listing = listed
    with pytest.raises(DuettoError):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def test_too_large_run_is_not_fetched(server: Server, repository_files: dict[str, bytes], tmp_path: Path):
    server.change_listing = change_config_entry("size", 6 * 10**9)
    with pytest.raises(UsageError, match=r"6\.00 GB, more than the limit of 5 GB.* --at-most 6\.1"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []
    assert not any("resolve" in asked for asked in server.requests)


@pytest.mark.parametrize("kind", ["folder", "file", "dangling"])
def test_pull_overwrites_no_existing_path(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path, kind: str
):
    output = tmp_path / "mine"
    if kind == "folder":
        output.mkdir()
        (output / "config.yaml").write_text("mine")
    if kind == "file":
        output.write_text("mine")
    if kind == "dangling":
        output.symlink_to(tmp_path / "nowhere")
    before = left_behind(tmp_path)
    with pytest.raises(UsageError, match="overwrites nothing"):
        duetto.pull("me/run", output)
    assert left_behind(tmp_path) == before
    assert server.requests == []


def test_interrupted_pull_leaves_no_files(server: Server, repository_files: dict[str, bytes], tmp_path: Path):
    def tell(words: str) -> None:
        if "state.safetensors" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("me/run", "got", tell=tell)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (lambda repository_files: {"model.bin": b"x"}, "contains no Duetto run: it has no config.yaml"),
        (
            lambda repository_files: {"config.yaml": repository_files["config.yaml"]},
            "contains no usable run. There is no checkpoint",
        ),
        (
            lambda repository_files: repository_files | {"checkpoints/step-000000000060/state.json": b"{}"},
            "contains no usable run. No checkpoint in me/run/checkpoints",
        ),
        (
            lambda repository_files: repository_files | {"checkpoints/step-000000000060/manifest.json": b"[]"},
            "contains no usable run. No checkpoint",
        ),
    ],
    ids=["no config", "no checkpoint", "invalid state", "invalid manifest"],
)
def test_repository_without_usable_run_is_refused(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path, files: Any, said: str
):
    server.repositories["me/run"].commit("main", files(repository_files), "hostile")
    with pytest.raises(DuettoError, match=said.replace(".", r"\.")) as failed:
        duetto.pull("me/run", "got")
    assert ".partial-" not in str(failed.value)
    assert left_behind(tmp_path) == []


def test_code_named_by_pulled_config_requires_trust(server: Server, repository_files: dict[str, bytes]):
    config = repository_files["config.yaml"].replace(b"id: Pendulum-v1", b"id: brought:Pendulum-v1")
    server.repositories["me/run"].commit("main", repository_files | {"config.yaml": config}, "hostile")
    pulled = duetto.pull("me/run", "got")
    with pytest.raises(UsageError, match="--trust"):
        pulled.evaluate(1)
    own = repository_files["config.yaml"].replace(
        b"name: td3", b"name: mine\n  from:\n    class: Mine\n    file: /evil.py"
    )
    server.repositories["me/run"].commit("main", repository_files | {"config.yaml": own}, "hostile")
    with pytest.raises(UsageError, match="--trust"):
        duetto.pull("me/run", "other")


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("call", "status", "said"),
    [
        ("GET /api/models/me/run$", 500, "answers 500 to me/run .*Try again later"),
        ("GET /api/models/me/run$", 403, "Your token may not"),
        ("GET /api/models/me/run$", 401, "It does not know your token"),
        ("GET /api/models/me/run$", 429, "answers 429 to me/run"),
        ("/resolve/.*manifest", 401, "answers 401 to .*manifest.json of me/run"),
    ],
)
def test_pull_reports_server_errors(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path, call: str, status: int, said: str
):
    server.refusals[call] = status
    with pytest.raises(DuettoError, match=said) as failed:
        duetto.pull("me/run", "got")
    assert "\x1b" not in str(failed.value)
    assert left_behind(tmp_path) == []


def test_pull_reports_missing_or_hidden_repository(
    server: Server, repository_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UsageError, match="has no repository me/other, or hides it from you"):
        duetto.pull("me/other")
    server.repositories["me/run"].private = True
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(DuettoError, match="me/run"):
        duetto.pull("me/run")


def test_pull_reports_unreachable_server(user_without_token: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DuettoError, match=r"127\.0\.0\.1:9 cannot be reached"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def test_pull_on_full_disk_leaves_no_files(
    server: Server, repository_files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("duetto.tools.hub.client.os.fsync", full)
    with pytest.raises(DuettoError, match="cannot be read or written here: No space left on device"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []
