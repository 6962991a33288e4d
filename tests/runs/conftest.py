import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / name) for name in ("training", "cli")]  # small_runs, commands
