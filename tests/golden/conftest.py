"""Put the simulated cluster and the in-process shards of other tests on the path."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / room) for room in ("cluster", "buffers")]
