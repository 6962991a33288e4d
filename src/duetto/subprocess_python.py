"""Start a Python process that finds the same modules as this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

_FINDS = "import json, sys; state = json.loads(sys.argv[1]); sys.path[:], sys.argv = state['path'], state['argv']"
Stream = int | IO[bytes] | None


def start(
    program: str, stdin: Stream, stdout: Stream, stderr: Stream = None, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a Python process that runs `program`, its source text, with this process's `sys.path` and `sys.argv`.

    So it imports the same modules, and `config.yaml` has the command that was typed here. Ctrl-C on the terminal
    reaches the parent alone, which has to end the process: it has its own process group. A new session
    would cost half of an environment's steps: Linux schedules sessions against each other (autogroup).

    Raises:
        OSError: No process can be started.
    """
    state = json.dumps({"path": [str(path) for path in sys.path], "argv": sys.argv})
    command = [sys.executable, "-c", f"{_FINDS}\n{program}", state]
    group = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0  # where there are no trainers
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, process_group=0, creationflags=group
    )
