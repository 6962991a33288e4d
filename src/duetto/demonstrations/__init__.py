"""Demonstrations: record them from an expert, store them on disk with checksums, load them for training.

Observations, actions and rewards have the format of a training run's `VecEnv`.

    types.py              demonstrations, their metadata, and checks that they fit an environment
    recording.py          record an expert, without the episodes that `keep` rejects; replay a demonstration
    dataset.py            write and load demonstrations
    minari_datasets.py    import and export Minari datasets
"""

from duetto.demonstrations.dataset import Writer, check_free, load, save, writer
from duetto.demonstrations.minari_datasets import export_minari, import_minari
from duetto.demonstrations.recording import EpisodePlayer, Expert, RecordedGame, RecordingEndedError, record
from duetto.demonstrations.types import Demonstration, Demonstrations, Metadata, check_fits

__all__ = [
    "Demonstration",
    "Demonstrations",
    "EpisodePlayer",
    "Expert",
    "Metadata",
    "RecordedGame",
    "RecordingEndedError",
    "Writer",
    "check_fits",
    "check_free",
    "export_minari",
    "import_minari",
    "load",
    "record",
    "save",
    "writer",
]
