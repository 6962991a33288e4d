"""Train several seeds in one process: sessions like any others, whose learners are computed together.

Each session has its own environments, buffer, random numbers, logs and folder, so its results are those of a run of
that seed alone, up to rounding: products of N seeds are added in another order. If one session has more to do than the
others, such as an evaluation, the others wait for it. If one ends or fails, the others continue without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from duetto.learners.multi_seed import SeedGroup
from duetto.training.callbacks import AnyCallback
from duetto.training.interruption import interruptible
from duetto.training.session import Session


def run_seeds(
    group: SeedGroup, sessions: Sequence[Session], callbacks: Sequence[Sequence[AnyCallback]]
) -> list[BaseException | None]:
    """Run the sessions of the group's learners, in its order, to their ends; return what each raised, or None.

    Ctrl-C ends all of them after their steps, with a checkpoint each; a second one ends them at once. The networks of
    a session that ends before the others stay as they are then.
    """

    def interrupt() -> None:
        for session in sessions:
            session.interrupt()

    with interruptible(interrupt, lambda: any(session.unfinished for session in sessions)):
        return group.run([partial(_run, *pair) for pair in zip(sessions, callbacks, strict=True)])


def _run(session: Session, callbacks: Sequence[AnyCallback]) -> None:
    try:
        session.run(callbacks)
    except Exception as error:
        session.stop(f"Seed {session.config.run.seed} has failed, and the others go on without it: {error}")
        raise
