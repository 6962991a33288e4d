import sys
from pathlib import Path

# commands.py and synthetic_runs.py
sys.path += [str(Path(__file__).parent.parent / name) for name in ("cli", "report")]
