"""Demonstrations: recorded from an expert, stored on disk with checksums, loaded to learn from.

Observations, actions and rewards are those of a training run's `VecEnv`.

    types.py              a demonstration, its metadata, and whether it fits an environment
    recording.py          record an expert; replay a demonstration
    dataset.py            write and load demonstrations
    minari_datasets.py    convert from and to Minari datasets
"""

from duetto.demonstrations.dataset import Writer, check_free, load, save, writer
from duetto.demonstrations.minari_datasets import export_minari, import_minari
from duetto.demonstrations.recording import EpisodePlayer, Expert, RecordedGame, RecordingEndedError, record
from duetto.demonstrations.types import Demonstration, Demonstrations, Metadata, check_fits
from duetto.networks.spaces import spell

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
    "spell",
    "writer",
]
