"""`duetto demos record|export|import|inspect|seal`: demonstrations, to learn from."""

from __future__ import annotations

import difflib
from importlib import import_module

from duetto.errors import UsageError

USAGE = "duetto demos record|export|import|inspect|seal ..."
COMMANDS = {
    "record": "duetto demos record BabyAI-KeyCorridorS3R3-v0 --expert bot --episodes 100 --output demos/keycorridor",
    "export": "duetto demos export runs/td3-HalfCheetah-v5-s0 --output demos/cheetah",
    "import": "duetto demos import old/episodes --environment LunarLander-v3 --output demos/lander",
    "inspect": "duetto demos inspect demos/keycorridor --video first.mp4",
    "seal": "duetto demos seal demos/keycorridor",
}
# "import" cannot be a name in Python.
_MODULES = {name: f"demos_{name}" for name in COMMANDS}


def main(arguments: list[str]) -> None:
    """Call the part that is asked for; each has a module of its own."""
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {example}" for example in COMMANDS.values()]
        print("\n".join([f"usage: {USAGE}", "", "Demonstrations, recorded to learn from:", "", *lines]))
        print("\nEach has a --help of its own.")
        return
    if arguments[0] not in COMMANDS:
        near = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"There is no command 'demos {arguments[0]}'. {hint}There are: {', '.join(COMMANDS)}.")
    import_module(f"duetto.cli.{_MODULES[arguments[0]]}").main(arguments[1:])
