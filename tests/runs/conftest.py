import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "cli"))  # calls of the command line
