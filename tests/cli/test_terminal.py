"""In a terminal of 80 columns lines break between words, and every exit restores the cursor."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from commands import SMALL

ENTRY = [sys.executable, "-c", "from duetto.tools.cli import main; main()"]
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
COLUMNS = 80


def run_in_terminal(folder: Path, *words: str, end: tuple[str, int] | None = None) -> tuple[int, str]:
    """Run a command on a terminal; return its exit status and output.

    `end` is a text and a signal: the signal is sent once the command has printed the text.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    command = [*ENTRY, *words]
    process = subprocess.Popen(
        command, cwd=folder, env=environment | {"TERM": "xterm"}, stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    printed = b""
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:  # the process has ended
            break
        if not chunk:
            break
        printed += chunk
        if end and end[0].encode() in printed:
            process.send_signal(end[1])
            end = None
    os.close(leader)
    return process.wait(), printed.decode()


def plain_lines(text: str) -> list[str]:
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)
    return [line.rstrip() for line in re.split("[\r\n]+", plain)]


@pytest.mark.parametrize(
    "call",
    [
        "train td3 Pendulum-v1 --normalize-observations",
        "check Pendulum-v1 --steps 300",
    ],
)
def test_terminal_lines_break_between_words(tmp_path: Path, call: str):
    _, printed = run_in_terminal(tmp_path, *call.split())
    piped = subprocess.run([*ENTRY, *call.split()], cwd=tmp_path, capture_output=True, text=True, check=False,
                           env=os.environ | {"COLUMNS": "1000"})  # fmt: skip
    frame = "[│╭╮╰╯─━]"
    words, whole = (
        {*re.sub(frame, " ", text).split()} for text in (printed_text(printed), piped.stdout + piped.stderr)
    )
    broken = [line for line in plain_lines(printed) if len(line) > COLUMNS and " " in line.strip()]
    assert [line for line in broken if "pip install" not in line] == []  # a command to copy is one line
    assert sorted(word for word in words - whole if not re.fullmatch(r"[\d.,]+|\(\d+", word)) == []


def printed_text(printed: str) -> str:
    """Return the printed lines except those of the live display."""
    return "\n".join(line for line in plain_lines(printed) if not line.startswith(("checking ", "td3 on ")))


TRAIN = ["train", "td3", "Pendulum-v1", "--steps", "100000", *SMALL]


DIVERGES = ["--critic-learning-rate", "1e30", "--learning-starts", "35"]


@pytest.mark.parametrize(
    ("seen", "number", "options"),
    [
        ("critic loss", signal.SIGINT, []),  # during training
        (HIDDEN, signal.SIGTERM, []),  # during imports
        ("diverged", 0, DIVERGES),
    ],
)
def test_cursor_is_visible_after_every_exit(tmp_path: Path, seen: str, number: int, options: list[str]):
    code, printed = run_in_terminal(tmp_path, *TRAIN, *options, end=(seen, number) if number else None)
    assert seen in printed
    assert printed.rfind(SHOWN) > printed.rfind(HIDDEN)
    if seen != HIDDEN:
        assert code in ((128 + number, -number) if number else (1,))
