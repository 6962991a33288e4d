"""The callbacks of a run: objects with hooks and a state, and functions.

    on_start
    every vector step   updates, on_update for each | metrics | evaluation, on_evaluation | on_step
                        | checkpoint, on_checkpoint | functions
    on_end

A checkpoint holds the callbacks' states after `on_step`. So if a run is killed, its callbacks continue as if
nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

from duetto.errors import UsageError
from duetto.functional.state_schema import DictOf
from duetto.storage.tree_codec import State, encode_tree

if TYPE_CHECKING:
    from duetto.training.trainer import Trainer

HOOKS = ("on_start", "on_step", "on_update", "on_evaluation", "on_checkpoint", "on_end")
FUNCTIONS = "__call__"  # what plain functions are called by


class Callback:
    """An object whose hooks are called during a run. Override those you need: each gets the `Trainer`.

    Its attributes are its settings; its state belongs in `state_dict`.
    """

    def on_start(self, trainer: Trainer) -> None:
        """Called before the first step, and whenever the run is resumed, with the state restored."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every vector step, its updates, metrics and evaluation, before its checkpoint.

        While a run learns from demonstrations before its first step, it is called after every update.
        """

    def on_update(self, trainer: Trainer) -> None:
        """Called after every update; if several are made at once, once for each of them after the last."""

    def on_evaluation(self, trainer: Trainer) -> None:
        """Called after every evaluation, whose result is in `trainer.last_evaluation` and on the disk."""

    def on_checkpoint(self, trainer: Trainer) -> None:
        """Called after every checkpoint, and when a run resumes from one; changes of state are not in that yet."""

    def on_end(self, trainer: Trainer) -> None:
        """Called at the end, after the last checkpoint: all steps are made, or `trainer.stopped`. Not called after an
        error.
        """

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps of this callback: a dict of plain data, and of such dicts.

        Plain data is None, bool, int, float, text, lists of those, and NumPy arrays. An empty dict means the state of
        a new object.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Not called if the checkpoint has no state of this callback."""


AnyCallback = Callback | Callable[["Trainer"], Any]


def check(callbacks: Sequence[AnyCallback]) -> None:
    """Raise UsageError for an object that is not a callback, before the run is created."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence):
        raise UsageError(f"callbacks is {callbacks!r}; it must be a list, such as [{_name(callbacks)}].")
    for callback in callbacks:
        if isinstance(callback, type):
            raise UsageError(f"{callback.__name__} is a class. Hand over an object of it: {callback.__name__}(...).")
        if not (isinstance(callback, Callback) or callable(callback)):
            raise UsageError(f"{callback!r} is no callback: give a duetto.Callback, or a function of the trainer.")
        wrong = [name for name in dir(callback) if name.lstrip("_").startswith("on_") and name not in HOOKS]
        if isinstance(callback, Callback) and (wrong or callable(callback)):
            raise UsageError(
                f"{_name(callback)} has {(*wrong, FUNCTIONS)[0]}, which is no hook. Hooks are {', '.join(HOOKS)}."
            )


class CallbackList:
    """The callbacks of one run, by name: the second one of a class is "Name 2".

    Attributes:
        running: How many hooks are being called, each within the one before it.
    """

    STATE: ClassVar[Any] = DictOf(dict)

    def __init__(self, notices: list[str]) -> None:
        """Start without callbacks. Sentences for the user go to `notices`."""
        self._notices = notices
        self.running: int = 0
        self._kept: State = {}
        self._members: dict[str, Callback] = {}
        self._functions: list[Callable[[Trainer], Any]] = []

    def expect(self, saved: State) -> None:
        """Keep a checkpoint's states, by name, for the callbacks of `take`."""
        self._kept = dict(saved)

    def take(self, callbacks: Sequence[AnyCallback]) -> None:
        """Make these the run's callbacks, and restore their states from the checkpoint.

        Raises:
            UsageError: A checkpoint cannot hold a callback's state.
        """
        self._members = _named([callback for callback in callbacks if isinstance(callback, Callback)])
        for name, callback in self._members.items():
            if name in self._kept:
                callback.load_state_dict(self._kept.pop(name))
        self._functions = [callback for callback in callbacks if not isinstance(callback, Callback)]
        self.state_dict()  # what cannot be saved shows now, not at the first checkpoint
        if self._kept:
            self._notices.append(
                f"The checkpoint has a state of {', '.join(self._kept)}, which this run continues without. Hand them "
                "over again as callbacks to continue from their states, which are kept."
            )

    def call(self, hook: str, trainer: Trainer) -> None:
        """Call the hook of every callback, or the functions, in order."""
        self.running += 1
        try:
            for callback in self._functions if hook == FUNCTIONS else self._members.values():
                getattr(callback, hook)(trainer)
        finally:
            self.running -= 1

    def state_dict(self) -> State:
        """Return the callbacks' states by name, absent callbacks included. Raises UsageError if one cannot be saved."""
        states = {name: _saved(name, callback) for name, callback in self._members.items()}
        return self._kept | {name: state for name, state in states.items() if state}


def _saved(name: str, callback: Callback) -> State:
    state = deepcopy(callback.state_dict())
    try:
        encode_tree(name, state)
    except TypeError as error:
        raise UsageError(
            f"The state of the callback {name} cannot be saved: {error} Return plain data from its state_dict, "
            "such as float(x) for a NumPy number and a list for a tuple."
        ) from error
    return state


def _named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    named: dict[str, Callback] = {}
    for callback in callbacks:
        name = _name(callback)
        same = sum(type(other).__name__ == name for other in named.values())
        named[f"{name} {same + 1}" if same else name] = callback
    return named


def _name(callback: object) -> str:
    return type(callback).__name__
