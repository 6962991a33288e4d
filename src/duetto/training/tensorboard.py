"""Numbers for TensorBoard.

They go to a file of TFRecords, each an event of tensorboardX's, written at once. Its own writer is not used: that has a
thread, which ends silently when the disk is full, and then every write waits for ever.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from duetto.training.notices import LOGGER


class Board:
    """A file of TensorBoard events in a new folder. If writing fails, it warns once and stops."""

    def __init__(self, folder: Path, step: int, purge: int) -> None:
        """Start a file whose first numbers are of `step`. From step `purge` on, what other files have is not shown."""
        self._folder = folder
        self._tensorboard = _imported()
        self._file: IO[bytes] | None = None
        # The step: a run that is resumed within the second would otherwise write over its own events.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{step:012}"
        log = self._tensorboard.proto.event_pb2.SessionLog
        try:
            folder.mkdir(exist_ok=True)  # not the folders above it
            self._file = (folder / name).open("wb")
            self._write(0, file_version="brain.Event:2")
            self._write(purge, session_log=log(status=log.START))
        except FileNotFoundError:  # the run's folder is gone: see `Trainer.in_its_folder`
            raise
        except OSError as error:
            self._end(error)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers, by name, as scalars of this step."""
        if self._file is None:
            return
        summary = self._tensorboard.proto.summary_pb2.Summary
        rows = [summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        try:
            self._write(step, summary=summary(value=rows))
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # an earlier error was reported
                file.close()

    def _write(self, step: int, **what: Any) -> None:
        assert self._file is not None
        event = self._tensorboard.proto.event_pb2.Event(step=step, wall_time=time.time(), **what).SerializeToString()
        length, checksum = struct.pack("<Q", len(event)), self._tensorboard.record_writer.masked_crc32c
        self._file.write(length + struct.pack("<I", checksum(length)) + event + struct.pack("<I", checksum(event)))
        self._file.flush()

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
        import tensorboardX
        import tensorboardX.proto.event_pb2
        import tensorboardX.proto.summary_pb2
        import tensorboardX.record_writer
    finally:
        if hidden:
            del sys.modules["torch"]
    return tensorboardX
