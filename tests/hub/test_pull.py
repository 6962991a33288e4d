"""A stranger's run from the Hub: what works with it, and what a hostile server cannot do."""

from __future__ import annotations

import json
import os
import shutil
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
from duetto.storage import atomic_io
from duetto.tools.hub import fetch


@pytest.fixture(scope="module")
def packed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a push of the run would send."""
    folder = tmp_path_factory.mktemp("packed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        duetto.push(trained, "me/run", episodes=1, video=False, dry_run=True)
    folder = folder.parent / "hub" / "run"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def there(server: Server, packed: dict[str, bytes]) -> dict[str, bytes]:
    """The run on the server, as me/run; its files, which may be changed."""
    return server.repository("me/run", **packed).files()


def left_behind(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# ---------------------------------------------------------------------------------------------------- what works
def test_what_was_pulled_is_a_run(there: dict[str, bytes], packed: dict[str, bytes], run: Run, tmp_path: Path):
    pulled = duetto.pull("me/run")
    assert pulled.path == tmp_path / "runs" / "run"
    found = {path.relative_to(pulled.path).as_posix() for path in pulled.path.rglob("*") if path.is_file()}
    assert found == packed.keys()
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


def test_by_the_installed_command(server: Server, there: dict[str, bytes], packed: dict[str, bytes], tmp_path: Path):
    """HF_ENDPOINT and HF_TOKEN, in a process of its own, as everybody gives them."""
    environment = os.environ | {"HF_ENDPOINT": server.address, "HF_TOKEN": TOKEN}
    call = [sys.executable, "-m", "duetto", "pull", "me/run", "--output", "got", "--json"]
    done = subprocess.run(call, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.keys() == {"repository", "path", "commit", "files", "notices"}
    assert (said["repository"], said["path"]) == ("me/run", "got")
    assert said["files"] == {name: len(data) for name, data in packed.items()}
    assert Path("got/config.yaml").read_bytes() == packed["config.yaml"]


def test_the_command_says_what_is_there(there: dict[str, bytes], command: Any):
    code, out, err = command("pull", "me/run")
    assert code == 0
    assert "runs/run: 11 files" in out
    assert "See it: duetto video runs/run" in out
    assert "Its replay memory was not sent" in err
    assert command("pull", "me/run")[::2] == (
        2,
        "duetto: runs/run exists already, and nothing is overwritten. Choose another --output.\n",
    )


def test_a_push_in_between_does_not_mix(server: Server, there: dict[str, bytes]):
    """All files are those of the commit that was listed."""

    def meanwhile(answer: Any) -> Any:
        server.repositories["me/run"].commit("main", there | {"config.yaml": b"other"}, "meanwhile")
        return answer

    server.looked = meanwhile
    assert fetch("me/run", "got").path.joinpath("config.yaml").read_bytes() == there["config.yaml"]


def test_large_files_from_another_host_do_not_get_the_token(server: Server, there: dict[str, bytes]):
    server.elsewhere = True
    assert duetto.pull("me/run", "got").agent().step == 60
    assert server.tokens_elsewhere == [None, None]


def test_a_download_that_breaks_off_is_tried_again(server: Server, there: dict[str, bytes]):
    server.cut = 2
    assert duetto.pull("me/run", "got").agent().step == 60


def test_a_server_that_is_busy_is_asked_again(server: Server, there: dict[str, bytes], monkeypatch: pytest.MonkeyPatch):
    server.refusals[r"resolve/.*/config\.yaml"] = 429
    monkeypatch.setattr("time.sleep", lambda seconds: server.refusals.clear())
    assert duetto.pull("me/run", "got").agent().step == 60


# ---------------------------------------------------------------------------------------------------- strangers
OUTSIDE = [
    "../evil",
    "checkpoints/../../evil",
    "/evil",
    "a/../../evil",
    "..\\evil",
    "C:\\evil",
    "C:/evil",
    "\\evil",
    "",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_outside_of_the_folder_is_not_fetched(
    server: Server, there: dict[str, bytes], tmp_path: Path, name: str
):
    server.listed = lambda entries: [*entries, entry(name, b"evil")]
    duetto.pull("me/run", "deep/got")
    assert not any("evil" in left for left in left_behind(tmp_path))
    assert not any("resolve" in asked and "evil" in asked for asked in server.asked)


def test_what_belongs_to_no_run_is_left_out(server: Server, there: dict[str, bytes]):
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
    server.repository("me/run", **there | others)
    pulled = duetto.pull("me/run", "got")
    assert pulled.path.exists()
    assert not any("evil" in name or "lock" in name for name in left_behind(Path("got")))


def test_a_name_twice(server: Server, there: dict[str, bytes], tmp_path: Path):
    server.listed = lambda entries: [*entries, entries[-1]]
    with pytest.raises(DuettoError, match="File exists"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data + b"x", "sends more of"),
        (lambda data: data * 1000, "sends more of"),
        (lambda data: data[:-1], "Consistency check failed"),
        (lambda data: bytes([data[0] ^ 1]) + data[1:], "its checksum is wrong"),
    ],
    ids=["longer", "endless", "shorter", "changed"],
)
@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/step-000000000060/state.safetensors"])
def test_other_content_than_listed(
    server: Server, there: dict[str, bytes], tmp_path: Path, name: str, change: Any, said: str
):
    server.content = lambda path, data: change(data) if path == name else data
    with pytest.raises(DuettoError, match=said):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def changed(key: str, value: Any) -> Any:
    return lambda entries: [one | {key: value} if one["rfilename"] == "config.yaml" else one for one in entries]


@pytest.mark.parametrize(
    "listed",
    [
        changed("size", -1),
        changed("size", "many"),
        changed("size", None),
        changed("size", True),
        changed("rfilename", 7),
        changed("blobId", None),
        changed("lfs", {"size": 1}),
        changed("lfs", {"size": 1, "sha256": 5, "pointerSize": 1}),
        lambda entries: {"error": "no"},
        lambda entries: [1, 2],
        lambda entries: [{}],
    ],
)
def test_a_listing_that_is_none(server: Server, there: dict[str, bytes], tmp_path: Path, listed: Any):
    server.listed = listed
    with pytest.raises(DuettoError):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def test_what_is_too_large_is_not_fetched(server: Server, there: dict[str, bytes], tmp_path: Path):
    server.listed = changed("size", 6 * 10**9)
    with pytest.raises(UsageError, match=r"6\.00 GB, more than the limit of 5 GB.* --at-most 6\.1"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []
    assert not any("resolve" in asked for asked in server.asked)


@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link", "dangling"])
def test_nothing_of_the_users_is_overwritten(server: Server, there: dict[str, bytes], tmp_path: Path, kind: str):
    output = tmp_path / "mine"
    if kind in ("folder", "empty"):
        output.mkdir()
    if kind == "folder":
        (output / "config.yaml").write_text("mine")
    if kind == "file":
        output.write_text("mine")
    if kind in ("link", "dangling"):
        output.symlink_to(tmp_path if kind == "link" else tmp_path / "nowhere")
    before = left_behind(tmp_path)
    with pytest.raises(UsageError, match="nothing is overwritten"):
        duetto.pull("me/run", output)
    assert left_behind(tmp_path) == before
    assert server.asked == []


def test_an_interrupted_pull_leaves_nothing(server: Server, there: dict[str, bytes], tmp_path: Path):
    def tell(words: str) -> None:
        if "state.safetensors" in words:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("me/run", "got", tell=tell)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (lambda there: {"model.bin": b"x"}, "holds no run of Duetto: it has no config.yaml"),
        (lambda there: {"config.yaml": there["config.yaml"]}, "holds no run that can be used. There is no checkpoint"),
        (
            lambda there: there | {"checkpoints/step-000000000060/state.json": b"{}"},
            "holds no run that can be used. No checkpoint in me/run/checkpoints",
        ),
        (
            lambda there: there | {"checkpoints/step-000000000060/manifest.json": b"[]"},
            "holds no run that can be used. No checkpoint",
        ),
    ],
    ids=["no run", "no checkpoint", "another state", "no manifest"],
)
def test_what_is_no_run(server: Server, there: dict[str, bytes], tmp_path: Path, files: Any, said: str):
    server.repositories["me/run"].commit("main", files(there), "hostile")
    with pytest.raises(DuettoError, match=said.replace(".", r"\.")) as failed:
        duetto.pull("me/run", "got")
    assert ".partial-" not in str(failed.value)
    assert left_behind(tmp_path) == []


def test_a_strangers_choice_of_code_is_not_run(server: Server, there: dict[str, bytes]):
    config = there["config.yaml"].replace(b"id: Pendulum-v1", b"id: brought:Pendulum-v1")
    server.repositories["me/run"].commit("main", there | {"config.yaml": config}, "hostile")
    pulled = duetto.pull("me/run", "got")
    with pytest.raises(UsageError, match="--trust"):
        pulled.evaluate(1)
    own = there["config.yaml"].replace(b"name: td3", b"name: mine\n  from:\n    class: Mine\n    file: /evil.py")
    server.repositories["me/run"].commit("main", there | {"config.yaml": own}, "hostile")
    with pytest.raises(UsageError, match="--trust"):
        duetto.pull("me/run", "other")


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("call", "status", "said"),
    [
        ("GET /api/models/me/run$", 500, "answers 500 to me/run .*Try again later"),
        ("GET /api/models/me/run$", 403, "Your token may not"),
        ("GET /api/models/me/run$", 404, "answers 404"),
        ("GET /api/models/me/run$", 401, "It does not know your token"),
        ("GET /api/models/me/run$", 429, "answers 429 to me/run"),
        ("/resolve/.*README", 404, "answers 404 to README.md of me/run"),
        ("/resolve/.*manifest", 401, "answers 401 to .*manifest.json of me/run"),
        ("/resolve/.*config", 500, "answers 500 to config.yaml of me/run"),
    ],
)
def test_a_server_that_refuses(
    server: Server, there: dict[str, bytes], tmp_path: Path, call: str, status: int, said: str
):
    server.refusals[call] = status
    with pytest.raises(DuettoError, match=said) as failed:
        duetto.pull("me/run", "got")
    assert "\x1b" not in str(failed.value)
    assert left_behind(tmp_path) == []


def test_what_is_not_there(server: Server, there: dict[str, bytes], monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match="has no me/other, or none that your token may see"):
        duetto.pull("me/other")
    server.repositories["me/run"].private = True
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(DuettoError, match="me/run"):
        duetto.pull("me/run")


def test_a_public_run_needs_no_token(server: Server, there: dict[str, bytes], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HF_TOKEN")
    assert duetto.pull("me/run").agent().step == 60


def test_nobody_answers(nobody: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DuettoError, match=r"127\.0\.0\.1:9 cannot be reached"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def test_a_full_disk(server: Server, there: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("duetto.tools.hub.client.os.fsync", full)
    with pytest.raises(DuettoError, match="cannot be read or written here: No space left on device"):
        duetto.pull("me/run", "got")
    assert left_behind(tmp_path) == []


def test_where_no_folder_can_be_made(server: Server, there: dict[str, bytes], tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot be made"):
        duetto.pull("me/run", tmp_path / "file" / "got")


def test_what_was_pulled_can_be_pushed(server: Server, there: dict[str, bytes]):
    pulled = duetto.pull("me/run", "got")
    duetto.push(pulled, "me/again", episodes=1, video=False)
    assert server.repositories["me/again"].files()["config.yaml"] == there["config.yaml"]
    shutil.rmtree("got")
    assert atomic_io.TEMPORARY not in "".join(left_behind(Path()))
