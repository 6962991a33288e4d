"""The callbacks of a run: objects with hooks and a state, or plain functions. They are called in this order:

    on_start
    every vector step   updates, on_update for each | metrics | evaluation, on_evaluation | on_step
                        | checkpoint, on_checkpoint | functions
    on_end

A checkpoint contains the callbacks' states after `on_step`. After a kill, callbacks resume with these states.

This is the order in `Trainer`. `DeviceTrainer` calls `on_step` after each call of its compiled program, and never calls
`on_update`.
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
FUNCTIONS = "__call__"  # the hook name for which `CallbackList.call` calls the plain functions


class Callback:
    """The base class of callbacks. Override the hooks that you need; each hook gets the `Trainer`.

    Keep settings in attributes, and return the state from `state_dict`.
    """

    def on_start(self, trainer: Trainer) -> None:
        """Called before the first step, and after every resume, once the callback's state is restored."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every vector step and its updates, metrics and evaluation, but before its checkpoint.

        While a run learns from demonstrations before its first step, Duetto calls this after every update.
        """

    def on_update(self, trainer: Trainer) -> None:
        """Called once for every update. If one program makes several updates, the calls come after the last update."""

    def on_evaluation(self, trainer: Trainer) -> None:
        """Called after every evaluation. The result is in `trainer.last_evaluation`, and already in the run's files."""

    def on_checkpoint(self, trainer: Trainer) -> None:
        """Called after every checkpoint, and when a run resumes from one.

        If this hook changes the callback's state, the change is in the next checkpoint, not in this one.
        """

    def on_end(self, trainer: Trainer) -> None:
        """Called after the last checkpoint, when all steps are done or the run was stopped; not after an error."""

    def state_dict(self) -> dict[str, Any]:
        """Return this callback's state for checkpoints: plain data in a dict, which may contain further dicts.

        Plain data is None, bool, int, float, str, lists of these, and NumPy arrays. An empty dict means that the
        callback has no state to restore.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`. Not called if the checkpoint has no state of this callback."""


AnyCallback = Callback | Callable[["Trainer"], Any]


def check(callbacks: Sequence[AnyCallback]) -> None:
    """Raise UsageError for an object that is not a callback, before the run is created."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence):
        raise UsageError(f"callbacks is {callbacks!r}; it must be a list, such as [{_name(callbacks)}].")
    for callback in callbacks:
        if isinstance(callback, type):
            raise UsageError(f"{callback.__name__} is a class. Give an object of this class: {callback.__name__}(...).")
        if not (isinstance(callback, Callback) or callable(callback)):
            raise UsageError(f"{callback!r} is not a callback. Give a duetto.Callback, or a function of the trainer.")
        wrong = [name for name in dir(callback) if name.lstrip("_").startswith("on_") and name not in HOOKS]
        if isinstance(callback, Callback) and (wrong or callable(callback)):
            raise UsageError(
                f"{_name(callback)} has {(*wrong, FUNCTIONS)[0]}, which is not a hook. Hooks are {', '.join(HOOKS)}."
            )


class CallbackList:
    """The callbacks of one run, by name: the class name; for a second object of the same class "ClassName 2".

    Attributes:
        running: Number of hooks that are running now: 0 outside of hooks, 2 if a hook caused a call of another hook.
    """

    STATE: ClassVar[Any] = DictOf(dict)

    def __init__(self, notices: list[str]) -> None:
        """Start without callbacks. Warnings for the user go to `notices`."""
        self._notices = notices
        self.running: int = 0
        self._kept: State = {}
        self._members: dict[str, Callback] = {}
        self._functions: list[Callable[[Trainer], Any]] = []

    def expect(self, saved: State) -> None:
        """Keep the callbacks' states from a checkpoint, by callback name; `take` restores them."""
        self._kept = dict(saved)

    def take(self, callbacks: Sequence[AnyCallback]) -> None:
        """Set the run's callbacks, and restore their states from the checkpoint.

        Raises:
            UsageError: The state of a callback is not plain data, so a checkpoint cannot contain it.
        """
        self._members = _named([callback for callback in callbacks if isinstance(callback, Callback)])
        for name, callback in self._members.items():
            if name in self._kept:
                callback.load_state_dict(self._kept.pop(name))
        self._functions = [callback for callback in callbacks if not isinstance(callback, Callback)]
        self.state_dict()  # raises now, rather than at the first checkpoint
        if self._kept:
            self._notices.append(
                f"The run continues without the callbacks {', '.join(self._kept)} of its checkpoint. Their states are "
                "kept. To continue with them, give these callbacks again."
            )

    def call(self, hook: str, trainer: Trainer) -> None:
        """Call this hook of every callback in order; if `hook` is FUNCTIONS, call the plain functions."""
        self.running += 1
        try:
            for callback in self._functions if hook == FUNCTIONS else self._members.values():
                getattr(callback, hook)(trainer)
        finally:
            self.running -= 1

    def state_dict(self) -> State:
        """Return the callbacks' states by name, including saved states of callbacks that the resumed run lacks.

        Raises:
            UsageError: The state of a callback is not plain data.
        """
        states = {name: _saved(name, callback) for name, callback in self._members.items()}
        return self._kept | {name: state for name, state in states.items() if state}


def _saved(name: str, callback: Callback) -> State:
    state = deepcopy(callback.state_dict())
    try:
        encode_tree(name, state)
    except TypeError as error:
        raise UsageError(
            f"The state of the callback {name} cannot be saved: {error} Return plain data from its state_dict: "
            "for example float(x) instead of a NumPy number, and a list instead of a tuple."
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
