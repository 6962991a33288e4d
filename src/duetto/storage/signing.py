"""Signatures of the code and data that a folder names, so that a stranger's folder runs no code.

A folder may refer to code and data: Gymnasium imports a module for an id such as "package:Id-v0", an option may name a
module ("env_id: package:Id-v0"), `FILE.py:CLASS` is executed, and a run may start from the networks of another folder.
When Duetto writes a folder, it signs the sorted list of these references with HMAC-SHA256. The key is 32 random bytes
that only this user has, so a valid signature shows that this user wrote the folder. A folder without references needs
no signature.

The signature covers a file's path and class, not its content: an edited file needs `--accept-changes`, not `--trust`.

Duetto makes the key at its first use, in the file `$DUETTO_KEY_FILE` or `$XDG_CONFIG_HOME/duetto/key`. Machines that
share runs must share the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from duetto.errors import UsageError
from duetto.storage import user_code

KEY_FILE = "DUETTO_KEY_FILE"
_KEY_BYTES = 32
Reference = tuple[str, str, str]  # kind (environment, algorithm or from), name, and options or a class


def needs_trust(environment: str, options: Mapping[str, Any]) -> bool:
    """Return whether this environment's id or an option names code: a module or a file."""
    return user_code.is_file(environment) or any(":" in text for text in (environment, *_texts(dict(options))))


def references(
    environment: str,
    options: Mapping[str, Any],
    algorithm: tuple[str, str] | None = None,
    folder: str | None = None,
) -> list[Reference]:
    """Return the sorted references of a run or a dataset that need trust.

    Args:
        environment: The id; "" for an environment that was passed as an object.
        options: The environment's options.
        algorithm: The file and the class of an algorithm from a file.
        folder: The folder of the run whose networks this run starts with.
    """
    listed: list[Reference] = []
    if needs_trust(environment, options):
        text = json.dumps(dict(options), sort_keys=True, default=repr)
        listed.append(("environment", environment, text))
    if algorithm is not None:
        listed.append(("algorithm", *algorithm))
    if folder is not None:
        listed.append(("from", folder, ""))
    return sorted(listed)


def sign(listed: Sequence[Reference]) -> str | None:
    """Return the signature of all references; None if there are none, or no key can be made or read."""
    with suppress(OSError, RuntimeError):
        return _signed(_key(make=True), listed) if listed else None
    return None


def is_ours(listed: Sequence[Reference], signature: object) -> bool:
    """Return whether `signature` is this user's signature of all references, or there are no references."""
    if not listed:
        return True
    with suppress(OSError, RuntimeError):
        ours = _signed(_key(make=False), listed)
        return isinstance(signature, str) and hmac.compare_digest(ours.encode(), signature.encode(errors="replace"))
    return False


def check(listed: Sequence[Reference], signature: object, where: object, kind: str, trust: bool = False) -> None:
    """Raise UsageError unless the folder's reference of this kind may be used.

    Args:
        listed: All references of the folder.
        signature: The folder's signature, of any type.
        where: The folder, for the message.
        kind: "environment", "algorithm" or "from".
        trust: Whether the user trusts the folder: `--trust`.
    """
    needed = next((reference for reference in listed if reference[0] == kind), None)
    if trust or needed is None or is_ours(listed, signature):
        return
    _, name, detail = needed
    options = "" if detail in ("", "{}") else f" ({detail})"
    verb = {"environment": "imports or runs", "algorithm": "runs", "from": "copies the networks of"}[kind]
    raise UsageError(
        f"{where} {verb} {name!r}{options}, and it was not started by you on this machine, or was changed since. If "
        "you trust it: --trust (in Python: trust=True)."
    )


def key_path() -> Path:
    """Return the path of this user's key, which may not exist yet."""
    if chosen := os.environ.get(KEY_FILE):
        return Path(chosen)
    parent = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
    return Path(parent or Path.home() / ".config") / "duetto" / "key"


def _signed(key: bytes, listed: Sequence[Reference]) -> str:
    return hmac.new(key, json.dumps(["duetto", *listed]).encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """Return this user's key. If `make` is True, create a missing key; of several processes, the first one's is kept.

    Raises OSError, or RuntimeError without a home folder.
    """
    path = key_path()
    if make and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # only this user can read it
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, path)  # atomic, and never replaces an existing key
    key = path.read_bytes()
    if len(key) < _KEY_BYTES:  # anyone could sign with an empty key
        raise OSError(f"{path} holds no key")
    return key


def _texts(value: object) -> list[str]:
    """Return all texts in nested dicts and lists, including keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list | tuple) else []
