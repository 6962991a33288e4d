import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path += [
    str(TESTS / "training"),
    str(TESTS / "cli"),
    str(TESTS / "reporting"),
]  # small environments and runs, and calls of the command line
