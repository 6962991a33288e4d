"""Find out whether a run can be resumed exactly, by resuming its environments in a process of their own.

`state.py` saves what it can see of an environment. A closure, a module's global, a class attribute or a C library's
memory it cannot see, and a run resumed without them would go on, but elsewhere. So:

    at a checkpoint           keep the environments' saved state: the first one after an episode has ended, since what
                              changes where episodes begin is in a new process what it is in a first episode
    the run's next steps      note the actions, and a checksum of what they led to
    after these               a new process makes the environments, loads the state, takes the same actions, compares

That process is what resuming is, so nothing of the run can leak into it; and the run is only watched. Nothing is
stepped, drawn or shared for the rehearsal, so the run's numbers are those without it. The process gets the environment
by cloudpickle, as Gymnasium's vector environments do; nothing that lies on the disk is unpickled.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import zlib
from typing import IO, Any

import numpy as np

from duetto import another_python
from duetto.environments import families, naming, recipes, trees
from duetto.environments.state import obstacle
from duetto.environments.stepping import Episode, Stepper, Transition
from duetto.environments.trees import Tree

# Vector steps that are compared; between these, until an episode has ended. What cuts them short, such as evaluations
# in the same process, leaves the rest to other checkpoints: what did not differ in a few steps may do so later.
LEAST, MOST = 200, 1000

# The tests compare these for every id that installs; the others are the user's own, or cannot be saved anyway.
_TESTED = {families.MUJOCO.name, families.ATARI.name, families.MINIGRID.name, "classic control", "PyBullet"}

# What a process runs. The path may be the script's, so it is set before anything is imported.

_Trace = list[tuple[np.ndarray, dict[str, int]]]  # of each step: the actions, and a checksum of each thing they led to


class Rehearsal:
    """The watch over one run, which says what it finds in `notices`, once.

    Attributes:
        exact: Whether the environments come back exactly from their saved state; None while that is not known.
    """

    def __init__(self, stepper: Stepper, notices: list[str], environment: Any, **options: Any) -> None:
        """`environment` and `options` are what `make` made `stepper` from."""
        self._tested = _is_tested(environment)
        self.exact: bool | None = True if self._tested else None
        self._stepper, self._notices = stepper, notices
        self._saved: dict[str, Any] = {}
        self._trace: _Trace = []
        self._compared = 0  # vector steps in which nothing differed, from all checkpoints
        self._ended = False  # whether an episode's end is among them
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] | None = None
        self._over = self._said_unsaved = False
        self._began = 0  # the stepper's steps that were made elsewhere
        self._recipe = b"" if self.exact else self._pickle(environment, options)

    def begin(self, saved: dict[str, Any]) -> None:
        """Begin to watch at a checkpoint with the stepper's state `saved`, unless all is known already."""
        if self.exact is False:
            return
        if saved["environments"] is None:
            if not self._said_unsaved:
                blame = next(filter(None, map(obstacle, self._stepper.environments)), "")
                because = f" ({blame}; with state_dict() and load_state_dict() it can save itself)" if blame else ""
                self._notices.append(f"The state of {self._stepper.name} cannot be saved{because}: {_CONSEQUENCE}")
            self._said_unsaved = True
        elif self.exact is None and not self._over and self.is_apart(saved):
            self._over, self._saved, self._trace = True, saved, []
            self._stepper.watcher = self._watch

    def is_apart(self, saved: dict[str, Any]) -> bool:
        """Whether the stepper, whose state this is, has been where one that was just made and reset has not.

        A step tells them apart but for what changes at resets alone; for that an episode has to end in this
        process, or `MOST` steps have to pass: some episodes never end.
        """
        return saved["steps"] - self._began > min(saved["lengths"].min(), MOST)

    def end(self) -> None:
        """End the watch before what the process will not repeat, such as an evaluation; compare what was seen."""
        if self._stepper.watcher is None:
            return
        self._stepper.watcher = None
        if not self._trace:
            self._over = False  # at another checkpoint, then
            return
        job = {"recipe": self._recipe, "saved": self._saved, "trace": self._trace}
        self._compared += len(self._trace)
        self._saved, self._trace = {}, []
        try:
            self._ask(job)
        except OSError as error:  # no room for temporary files, no process left: the run goes on
            self.close()
            self._say(None, f"no other process could be asked ({error})")

    def _ask(self, job: dict[str, Any]) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - open until the answer is read
        with tempfile.TemporaryFile() as question:
            pickle.dump(job, question)
            question.seek(0)
            start = "from duetto.environments.rehearsal import main; main()"
            self._process = another_python.begin(start, question, self._answer, subprocess.DEVNULL)

    def look(self, patience: float = 0.0) -> None:
        """Take the process's answer if it is there; with `patience`, in seconds, end the watch and wait for it."""
        if patience:
            self.end()
        if self._process is None or self._answer is None:
            return
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            if patience:
                self.close()
                self._say(None, f"finding out took longer than {patience:.0f} seconds")
            return
        self._answer.seek(0)
        text = self._answer.read()
        exact, finding = json.loads(text) if text else (None, f"its process ended with {self._process.returncode}")
        self.close()
        if exact and self._compared < self._wanted():
            self._over = False  # at other checkpoints, more
            if not patience:
                return
            if not self._ended:
                exact, finding = None, f"nothing differed in {self._compared} steps, but no episode ended in them"
        self._say(exact, finding)

    def _wanted(self) -> int:
        """Return how many steps are to be compared in all."""
        return LEAST if self._ended else MOST

    def recall(self, exact: bool | None) -> None:
        """Take over `exact` from the resumed checkpoint; False may have been mended since, and becomes None."""
        self._said_unsaved, self._began = not self._stepper.resumed_exactly, self._stepper.steps
        self.exact = self.exact or exact or None
        if self.exact is None and self._stepper.resumed_exactly:
            self._notices.append(
                f"The state of {self._stepper.name} was restored, but the run had stopped before it was found out "
                "whether that is all of it. It is not if it keeps state outside its attributes."
            )

    def doubt(self) -> None:
        """Find out anew: something was set from outside, which the environments may keep where nobody sees it."""
        if self._tested or self.exact is False or not self._recipe:
            return
        self.close()  # a process that is asked about what was before
        self.exact, self._over, self._compared, self._ended = None, False, 0, False

    def close(self) -> None:
        """Stop watching, and the process."""
        self._stepper.watcher = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _pickle(self, environment: Any, options: dict[str, Any]) -> bytes:
        try:
            return recipes.pack(environment, options)
        except Exception as error:  # whatever a user's objects raise
            self._over = True
            self._say(None, f"it cannot be handed to another process ({type(error).__name__}: {error})")
            return b""

    def _watch(self, actions: np.ndarray, transition: Transition, episodes: list[Episode]) -> None:
        self._trace.append((actions.copy(), _checksums(self._stepper, transition, episodes)))
        self._ended = self._ended or bool(episodes)
        if self._compared + len(self._trace) >= self._wanted():
            self.end()

    def _say(self, exact: bool | None, finding: str) -> None:
        self.exact, name = exact, self._stepper.name
        if exact is None:
            self._notices.append(f"Whether {name} comes back exactly when this run is resumed is not known: {finding}.")
        elif not exact:
            self._notices.append(
                f"{name} does not come back exactly from its saved state ({finding}): {_CONSEQUENCE} What is outside "
                "its attributes (globals, class attributes, closures) is not saved. With state_dict() and "
                "load_state_dict() it can save that itself. Or a callback has changed something in it meanwhile."
            )


_CONSEQUENCE = "resuming this run begins new episodes."


def main() -> None:
    """Read the job from standard input, do it, and write the answer; this is what the process runs."""
    answer = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # environments print
    if hasattr(os, "nice"):
        os.nice(10)  # the run comes first
    job = pickle.load(sys.stdin.buffer)
    os.write(answer, json.dumps(_rehearse(**job)).encode())


def _rehearse(recipe: bytes, saved: dict[str, Any], trace: _Trace) -> tuple[bool | None, str]:
    """Return whether the environments come back exactly, None where that cannot be said, and what did not."""
    try:
        stepper = recipes.make(recipe)
    except Exception as error:  # whatever a user's objects raise
        return None, f"it cannot be made in another process ({type(error).__name__}: {error})"
    number = 0
    try:
        stepper.load_state_dict(saved)
        if not stepper.resumed_exactly:
            return False, "as loading it says"
        for number, (actions, expected) in enumerate(trace, 1):
            seen = _checksums(stepper, *stepper.step(actions))
            different = [name for name, checksum in seen.items() if checksum != expected[name]]
            if different:
                return False, f"{' and '.join(different)} differed at step {number} after it"
    except Exception as error:
        return False, f"{type(error).__name__} at step {number} after it: {error}"
    finally:
        stepper.close()
    return True, ""


def _checksums(stepper: Stepper, transition: Transition, episodes: list[Episode]) -> dict[str, int]:
    return {
        "the observation": _sum_tree(transition.next_obs),
        "the reward": _sum_tree(transition.reward),
        "terminated": _sum_tree(transition.terminated),
        "truncated": _sum_tree(transition.truncated),
        "the next episode's first observation": _sum_tree(stepper.obs),
        "the return": zlib.crc32(repr(episodes).encode()),
    }


def _sum_tree(tree: Tree) -> int:
    checksum = 0
    for _, part in trees.parts(tree):
        checksum = zlib.crc32(np.ascontiguousarray(part).data, checksum)
    return checksum


def _is_tested(environment: Any) -> bool:
    """Whether the tests compare it: by the family that its class is of, unless its id adds wrappers to that."""
    spec = naming.spec_of(environment) if isinstance(environment, str) else None
    if spec is None or spec.additional_wrappers:
        return False
    family = families.of_entry_point(spec.entry_point)
    return family is not None and family.name in _TESTED
