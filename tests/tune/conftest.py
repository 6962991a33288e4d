import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / "training"), str(TESTS / "cli")]  # small environments, and calls of the command line
