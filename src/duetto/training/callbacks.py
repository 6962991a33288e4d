"""The callbacks of a run: objects with hooks and a state of their own, and plain functions.

    on_start
    every vector step   updates, on_update for each | metrics | evaluation, on_evaluation | on_step
                        | checkpoint, on_checkpoint | functions
    on_end

A checkpoint holds the callbacks' states after `on_step`. So if a run is killed, its callbacks continue as if
nothing had happened.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from duetto.errors import UsageError
from duetto.functional.state_schema import DictOf
from duetto.storage.tree_codec import State, encode_tree

if TYPE_CHECKING:
    from duetto.training.trainer import Trainer

HOOKS = ("on_start", "on_step", "on_update", "on_evaluation", "on_checkpoint", "on_end")
_ELSEWHERE = {  # hooks of other libraries
    "on_training_start": "on_start",
    "on_train_begin": "on_start",
    "on_training_end": "on_end",
    "on_train_end": "on_end",
    "on_rollout_start": "on_step",
    "on_rollout_end": "on_update",
}
FUNCTIONS = "__call__"  # what plain functions are called by


class Callback:
    """An object whose hooks are called during a run. Override those you need: each gets the `Trainer`.

    Its attributes are what it is made with; what it has learned from the run belongs in `state_dict`.
    """

    ends_last: ClassVar[bool] = False
    """Whether its `on_end` is called after those of all others, and may use what they log there."""

    def on_start(self, trainer: Trainer) -> None:
        """Called before the first step, and whenever the run is resumed, with the state restored."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after every vector step, its updates, metrics and evaluation, before its checkpoint.

        While a run learns from demonstrations before its first step, it is called after every update.
        """

    def on_update(self, trainer: Trainer) -> None:
        """Called after every update; if several are made at once, once for each of them after the last."""

    def on_evaluation(self, trainer: Trainer) -> None:
        """Called after every evaluation, whose result is in `trainer.last_evaluation` and on the disk.

        On a cluster, where evaluations are made beside the run, a callback with this hook makes the run wait for them.
        """

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
    """Raise UsageError if one of these is no callback; called before anything is made."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence):
        raise UsageError(f"callbacks is {callbacks!r}; it must be a list, such as [{_name(callbacks)}].")
    for callback in callbacks:
        if isinstance(callback, type):
            raise UsageError(f"{callback.__name__} is a class. Hand over an object of it: {callback.__name__}(...).")
        if not (isinstance(callback, Callback) or callable(callback)):
            raise UsageError(f"{callback!r} is no callback: give a duetto.Callback, or a function of the trainer.")
        if isinstance(callback, Callback):
            _check_hooks(callback)


def _check_hooks(callback: Callback) -> None:
    """Raise UsageError if a callback has a method or attribute that looks like a hook but would never be called."""
    kind, name = type(callback), _name(callback)
    unheard = [hook for hook in HOOKS if getattr(kind, hook) is getattr(Callback, hook)]
    if own := [hook for hook in unheard if hook in getattr(callback, "__dict__", {})]:
        raise UsageError(
            f"{name} has {own[0]} as an attribute of the object, which is not called: define it in the class."
        )
    if callable(callback) and len(unheard) == len(HOOKS):
        raise UsageError(
            f"{name} is a Callback, so it is called by its hooks, not by __call__: rename that to on_step."
        )
    for method in dir(kind):
        if method in HOOKS or not callable(getattr(kind, method)):
            continue
        near = difflib.get_close_matches(method, HOOKS, n=1, cutoff=0.8)
        if meant := _ELSEWHERE.get(method.lstrip("_")) or next(iter(near), None):
            raise UsageError(f"{name} has {method}, which is no hook. Did you mean {meant!r}?")
        if method.lstrip("_").startswith("on_") and len(unheard) == len(HOOKS):
            raise UsageError(f"{name} has {method}, which is no hook, and no other. Hooks are {', '.join(HOOKS)}.")


States = list[State]  # of the callbacks, in their order; of functions none


def states(callbacks: Sequence[AnyCallback]) -> States:
    """Copies of the callbacks' states, in order; an empty one for a function."""
    return [deepcopy(one.state_dict()) if isinstance(one, Callback) else {} for one in callbacks]


def take_back(callbacks: Sequence[AnyCallback], before: States) -> list[str]:
    """Undo what callbacks learned since `states`, as that part of the run is lost. A sentence for each that cannot."""
    said = []
    for callback, state in zip(callbacks, before, strict=True):
        if not isinstance(callback, Callback):
            continue
        if state:
            callback.load_state_dict(deepcopy(state))
        elif callback.state_dict():
            said.append(
                f"The callback {_name(callback)} keeps what it learned in the part that was lost, unless the "
                "checkpoint has a state of it: its state was empty at the start."
            )
    return said


class CallbackList:
    """The callbacks of one run, by name: the second one of a class is "Name 2".

    Attributes:
        running: The hooks that are being called, each within the one before it.
    """

    STATE: ClassVar[Any] = DictOf(dict)

    def __init__(self, notices: list[str]) -> None:
        """Start without callbacks. Sentences for the user go to `notices`."""
        self._notices = notices
        self.running: list[str] = []
        self._good: State = {}  # the last that could be saved, by name
        self._kept: State = {}
        self._members: dict[str, Callback] = {}
        self._called: dict[str, list[Callable[[Trainer], Any]]] = {}
        self._refused: list[Callable[[Trainer], Any]] = []  # those that returned False

    def expect(self, saved: State) -> None:
        """Keep a checkpoint's states, by name, for the callbacks of `take`."""
        self._kept = dict(saved)

    def take(self, callbacks: Sequence[AnyCallback]) -> None:
        """Make these the run's callbacks, and restore their states from the checkpoint.

        Raises:
            UsageError: A checkpoint cannot hold a callback's state. (Later, checkpoints keep its last good state.)
        """
        check(callbacks)
        self._members = _named([callback for callback in callbacks if isinstance(callback, Callback)])
        for name, callback in self._members.items():
            if name in self._kept:
                callback.load_state_dict(self._kept.pop(name))
        for hook in HOOKS:
            nothing = getattr(Callback, hook)
            overriding = [one for one in self._members.values() if getattr(type(one), hook) is not nothing]
            if hook == "on_end":
                overriding.sort(key=lambda one: one.ends_last)
            self._called[hook] = [getattr(one, hook) for one in overriding]
        self._called[FUNCTIONS] = [callback for callback in callbacks if not isinstance(callback, Callback)]
        for name, callback in self._members.items():  # what cannot be saved shows now, not at the first checkpoint
            self._good[name] = _saved(name, callback)
        if self._kept:
            self._notices.append(
                f"The checkpoint has a state of {', '.join(self._kept)}, which this run continues without: hand them "
                "over again as callbacks, and they continue from there. Until then their states are kept as they are."
            )

    def listens(self, hook: str) -> bool:
        """Whether any callback has the hook."""
        return bool(self._called.get(hook))

    def call(self, hook: str, trainer: Trainer) -> None:
        """Call the hook of every callback that has it, in order."""
        self.running.append(hook)
        try:
            for called in self._called.get(hook, ()):
                self._check_returned(called, called(trainer))
        finally:
            self.running.pop()

    def _check_returned(self, called: Callable[[Trainer], Any], returned: Any) -> None:
        """Warn once of a callback that returns False, which ends training in Stable-Baselines3."""
        if isinstance(returned, bool | np.bool_) and not returned and called not in self._refused:
            self._refused.append(called)
            self._notices.append(
                f"The callback {getattr(called, '__qualname__', _name(called))} returned False, which ends nothing "
                "here: call trainer.stop() where the run is to end."
            )

    def state_dict(self) -> State:
        """The callbacks' states by name, of absent ones too; if one cannot be saved any more, the last that could."""
        for name, callback in self._members.items():
            try:
                self._good[name] = _saved(name, callback)
            except UsageError as error:  # what was learned is not lost for it
                self._notices.append(f"{error} Checkpoints have the last state of it that could be saved.")
        return self._kept | {name: state for name, state in self._good.items() if state}


def _saved(name: str, callback: Callback) -> State:
    state = callback.state_dict()
    try:
        encode_tree(name, state)
    except TypeError as error:
        raise UsageError(
            f"The state of the callback {name} cannot be saved: {error} Return plain data from its state_dict, "
            "such as float(x) for a NumPy number and a list for a tuple."
        ) from error
    return deepcopy(state)


def _named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    named: dict[str, Callback] = {}
    for callback in callbacks:
        name = _name(callback)
        same = sum(type(other).__name__ == name for other in named.values())
        named[f"{name} {same + 1}" if same else name] = callback
    return named


def _name(callback: object) -> str:
    return type(callback).__name__
