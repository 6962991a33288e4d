"""Runs of several seeds at once: sessions like any others, whose learners are computed together.

    seed 0   step, remember, ask |                              | step, remember, ask |
    seed 1                       | step, remember, ask |                              | ...
    both                                               | answer |

Each session has its own environments, memory, random numbers, logs and folder, so each is what it would be alone, to
rounding: products of N seeds are added up in another order. If one has more to do than the others, such as the steps
of an evaluation or the epochs of a rollout, they wait for it; if one ends or fails, the others go on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from duetto.learners.voices import Choir
from duetto.training.callbacks import AnyCallback
from duetto.training.interruption import interruptible
from duetto.training.session import Session
from duetto.training.turns import Turns


def run_together(
    choir: Choir, sessions: Sequence[Session], callbacks: Sequence[Sequence[AnyCallback]]
) -> list[BaseException | None]:
    """Run sessions whose learners are the choir's voices, in its order, to their ends; what each raised, or None.

    Ctrl-C ends all of them after their steps, with a checkpoint each; a second one ends them at once. The networks of
    a session that ends before the others stay as they are then.
    """

    def interrupt() -> None:
        for session in sessions:
            session.interrupt()

    turns = Turns(choir.answer)
    alone, choir.ask = choir.ask, turns.ask
    try:
        with interruptible(interrupt):
            parts = enumerate(zip(sessions, callbacks, strict=True))
            return turns.run([partial(_run, one, own, partial(choir.leave, number)) for number, (one, own) in parts])
    finally:
        choir.ask = alone
        choir.rest()


def _run(session: Session, callbacks: Sequence[AnyCallback], leave: Callable[[], None]) -> None:
    try:
        session.run(callbacks)
    except Exception as error:
        session.stop(f"Seed {session.config.run.seed} has failed, and the others go on without it: {error}")
        raise
    finally:
        leave()
