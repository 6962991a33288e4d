"""Recorded demonstrations: made by an expert, kept as Minari datasets, handed to whoever learns from them.

A dataset is a folder that Minari itself reads (`minari.MinariDataset(path)`); what Duetto needs to know stands in
Minari's own metadata, and `manifest.json` has the checksums of both files. Observations, actions and rewards are those
that a training run's `Stepper` gives and takes.
"""

from duetto.demonstrations.episodes import Demonstration, Demonstrations, Description
from duetto.demonstrations.fitting import check_fits, spell
from duetto.demonstrations.importing import as_learned, open_source
from duetto.demonstrations.reading import load
from duetto.demonstrations.recording import Expert, Game, record
from duetto.demonstrations.replaying import Replay
from duetto.demonstrations.writing import Writer, check_free, save, seal, writer

__all__ = [
    "Demonstration",
    "Demonstrations",
    "Description",
    "Expert",
    "Game",
    "Replay",
    "Writer",
    "as_learned",
    "check_fits",
    "check_free",
    "load",
    "open_source",
    "record",
    "save",
    "seal",
    "spell",
    "writer",
]
