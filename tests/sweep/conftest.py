import sys
from pathlib import Path

# line_environment.py, small_runs.py and commands.py
sys.path += [str(Path(__file__).parent.parent / name) for name in ("training", "cli")]
