"""Everything that must hold before a change lands: `python check.py`. Arguments go to pytest."""

import subprocess
import sys

CHECKS = [
    ["ruff", "format", "--check", "."],
    ["ruff", "check", "."],
    ["lint-imports"],
    ["pyright"],
    ["pyright", "--verifytypes", "duetto", "--ignoreexternal"],  # every public name's type is written down
    [sys.executable, "-m", "pytest", *sys.argv[1:]],
]

if __name__ == "__main__":
    for command in CHECKS:
        print("$", " ".join(command), flush=True)
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(1)
