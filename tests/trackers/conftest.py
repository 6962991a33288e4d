import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "training"))  # small_runs.py
