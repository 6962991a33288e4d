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

    So the child imports the same modules, and its `config.yaml` contains this process's command. It has its own process
    group: Ctrl-C on the terminal reaches only the parent, which must end the child. It stays in the parent's session:
    Linux divides CPU time between sessions (autogroup), so in a separate session an environment is half as fast.

    Raises:
        OSError: No process can be started.
    """
    state = json.dumps({"path": [str(path) for path in sys.path], "argv": sys.argv})
    command = [sys.executable, "-c", f"{_FINDS}\n{program}", state]
    group = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0  # Windows ignores `process_group`
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, process_group=0, creationflags=group
    )
