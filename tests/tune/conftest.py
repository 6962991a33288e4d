import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / "training"), str(TESTS / "cli")]  # line_environment.py and commands.py
