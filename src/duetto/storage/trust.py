"""Whose code may run: that of runs that this user began, and what is trusted by name.

Gymnasium imports a module for an id such as "package:Id-v0", and an option may name one too ("env_id: package:Id-v0").
In a folder from elsewhere that is a stranger's choice of code. So what holds such a name is signed when it is written:
HMAC-SHA256 over the id and the options, with 32 random bytes that only this user has. A folder whose signature is right
was made by this user, wherever it lies by now. Ids without a module need no key, and none is made for them.

An algorithm from a file of the user's own is signed alike, HMAC over the file's path and the class; see `origin`. So is
the folder of another run that a run begins from: what it learned is copied.

The key is made at first use: `DUETTO_KEY_FILE` or `$XDG_CONFIG_HOME/duetto/key`. Machines that share runs share it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from duetto import own_files
from duetto.errors import UsageError

KEY_FILE = "DUETTO_KEY_FILE"
_KEY_BYTES = 32


def needs_trust(environment: str, options: Mapping[str, Any]) -> bool:
    """Whether making this environment may run code that its id or one of its options names: a module, or a file."""
    return own_files.is_file(environment) or any(":" in text for text in (environment, *_texts(dict(options))))


def signature(environment: str, options: Mapping[str, Any]) -> str | None:
    """The signature of an environment's id and options; None if none is needed, or no key can be made or read."""
    return _signature(_said(environment, options)) if needs_trust(environment, options) else None


def file_signature(file: str, kind: str) -> str | None:
    """The signature of an algorithm's file and class; None if no key can be made or read."""
    return _signature(["duetto algorithm", file, kind])


def folder_signature(folder: str) -> str | None:
    """The signature of the run that another one begins from; None if no key can be made or read."""
    return _signature(["duetto from", folder])


def is_ours(environment: str, options: Mapping[str, Any], signed: object) -> bool:
    """Whether id and options name no code to run, or are `signed` by this user."""
    return not needs_trust(environment, options) or _is_ours(_said(environment, options), signed)


def check(environment: str, options: Mapping[str, Any], signed: object, where: object, trust: bool = False) -> None:
    """Raise UsageError unless the environment's modules may be imported. Call it before any `environments.make`.

    Args:
        environment, options: As the folder says.
        signed: What the folder has as their `signature`, whatever it is.
        where: The folder, for the message.
        trust: Whether the user trusts it: `--trust`.

    Raises:
        UsageError: The id or an option names a module, and this user neither began the run nor trusts it.
    """
    if trust or is_ours(environment, options, signed):
        return
    named = " with " + ", ".join(f"{key}={value!r}" for key, value in options.items()) if options else ""
    what, does = (
        ("file", "runs that file") if own_files.is_file(environment) else ("package", "imports what that names")
    )
    raise UsageError(
        f"{where} is of the environment {environment!r}{named}, and to make it Python {does}. It was not begun by you "
        f"on this machine, or it was changed since. If you know the {what} and want it to run: --trust (in Python: "
        "trust=True)."
    )


def check_file(file: str, kind: str, signed: object, where: object, trust: bool = False) -> None:
    """Raise UsageError unless the algorithm's file may be run; arguments as for `check`.

    Raises:
        UsageError: This user neither began the run nor trusts it.
    """
    if not trust and not _is_ours(["duetto algorithm", file, kind], signed):
        raise UsageError(
            f"{where} is of an algorithm in a file, {file}:{kind}, and to go on Python runs that file. It was not "
            "begun by you on this machine, or it was changed since. If you know the file and want it to run: --trust "
            "(in Python: trust=True)."
        )


def check_folder(folder: str, signed: object, where: object, trust: bool = False) -> None:
    """Raise UsageError unless this user named the run that is begun from; arguments as for `check`.

    Raises:
        UsageError: This user neither began the run nor trusts it.
    """
    if not trust and not _is_ours(["duetto from", folder], signed):
        raise UsageError(
            f"{where} begins with what another run has learned, {folder}, and copies that. It was not begun by you on "
            "this machine, or it was changed since. If it is meant to: --trust (in Python: trust=True)."
        )


def key_path() -> Path:
    """The path of this user's key, whether it is there yet or not."""
    if chosen := os.environ.get(KEY_FILE):
        return Path(chosen)
    if sys.platform == "win32":
        parent = os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming"
    else:
        parent = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(parent) / "duetto" / "key"


def _said(environment: str, options: Mapping[str, Any]) -> list[Any]:
    return ["duetto environment", environment, dict(options)]


def _signature(said: list[Any]) -> str | None:
    try:
        return _signed(_key(make=True), said)
    except OSError:
        return None


def _is_ours(said: list[Any], signed: object) -> bool:
    """Whether `signed` is this user's signature of `said`."""
    with suppress(OSError):
        ours = _signed(_key(make=False), said)
        return isinstance(signed, str) and hmac.compare_digest(ours.encode(), signed.encode(errors="replace"))
    return False


def _signed(key: bytes, said: list[Any]) -> str:
    text = json.dumps(said, sort_keys=True, default=repr)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """This user's key; with `make` it is made if there is none. Raises OSError if it cannot be had."""
    try:
        path = key_path()
    except RuntimeError as error:  # no home folder
        raise OSError(str(error)) from error
    if make and not path.exists():
        _make_key(path)
    key = path.read_bytes()
    if len(key) < _KEY_BYTES:  # anyone could sign with no key
        raise OSError(f"{path} holds no key")
    return key


def _make_key(path: Path) -> None:
    """Write a new key; where another process is doing the same, all take the one that came first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(temporary, path)  # whole or not at all, and never over one that is there
    finally:
        temporary.unlink()


def _texts(value: object) -> list[str]:
    """All texts in nested dicts and lists, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list | tuple) else []
