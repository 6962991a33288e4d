import sys
from pathlib import Path

# Small environments and runs, calls of the command line, and runs that nobody has trained.
sys.path += [str(Path(__file__).parent.parent / name) for name in ("training", "cli", "report")]
