"""Numbers for TensorBoard.

They are written at once, with tensorboardX's `EventsWriter`. Its `SummaryWriter` has a thread, which ends silently when
the disk is full, and then every write waits for ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from duetto.training.notices import LOGGER


class Board:
    """A file of TensorBoard events in a new folder. If writing fails, it warns once and stops."""

    def __init__(self, folder: Path, step: int, purge: int) -> None:
        """Start a file whose first numbers are of `step`. From step `purge` on, what other files have is not shown."""
        self._folder = folder
        tensorboard = _imported()
        self._event, self._summary = tensorboard.proto.event_pb2.Event, tensorboard.proto.summary_pb2.Summary
        log = tensorboard.proto.event_pb2.SessionLog
        self._writer: Any = None
        try:
            folder.mkdir(exist_ok=True)  # not the folders above it
            # The step: a run that is resumed within the second would otherwise write over its own events.
            self._writer = tensorboard.event_file_writer.EventsWriter(str(folder / "events"), f".{step:012}")
            self._write(purge, session_log=log(status=log.START))
        except FileNotFoundError:  # the run's folder is gone
            raise
        except OSError as error:
            self._end(error)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers, by name, as scalars of this step."""
        if self._writer is None:
            return
        rows = [self._summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        try:
            self._write(step, summary=self._summary(value=rows))
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # where it refuses, that was said, or all is written
                writer.close()

    def _write(self, step: int, **what: Any) -> None:
        self._writer.write_event(self._event(step=step, wall_time=time.time(), **what))
        self._writer.flush()

    def _end(self, error: OSError) -> None:
        self.close()
        LOGGER.warning(
            "%s cannot be written: %s. The run continues without TensorBoard; metrics.jsonl has the same numbers.",
            self._folder,
            error.strerror,
        )


def _imported() -> Any:
    """Import tensorboardX: 0.3 s that only a training run should pay.

    It imports PyTorch where that is installed, for pictures of models: another 0.9 s and 200 MB, which a run on JAX
    should not pay at all. So PyTorch is hidden from it.
    """
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tensorboardX.event_file_writer
    finally:
        if hidden:
            del sys.modules["torch"]
    return tensorboardX
