"""Train several seeds in one process: trainers like any others, whose learners are computed together.

Each trainer has its own environments, buffer, random numbers, logs and folder, so its results are those of a run of
that seed alone, up to rounding: products of N seeds are added in another order. If one trainer has more to do than the
others, such as an evaluation, the others wait for it. If one ends or fails, the others continue without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from duetto.learners.multi_seed import SeedGroup
from duetto.training.callbacks import AnyCallback
from duetto.training.signals import interruptible
from duetto.training.trainer import Trainer


def run_seeds(
    group: SeedGroup, trainers: Sequence[Trainer], callbacks: Sequence[Sequence[AnyCallback]]
) -> list[BaseException | None]:
    """Run the trainers of the group's learners, in its order, to their ends; return what each raised, or None.

    Ctrl-C ends all of them after their steps, with a checkpoint each; a second one ends them at once. The networks of
    a trainer that ends before the others stay as they are then.
    """

    def interrupt() -> None:
        for trainer in trainers:
            trainer.interrupt()

    with interruptible(interrupt, lambda: any(trainer.unfinished for trainer in trainers)):
        return group.run([partial(_run, *pair) for pair in zip(trainers, callbacks, strict=True)])


def _run(trainer: Trainer, callbacks: Sequence[AnyCallback]) -> None:
    try:
        trainer.run(callbacks)
    except Exception as error:
        trainer.stop(f"Seed {trainer.config.run.seed} has failed, and the others continue without it: {error}")
        raise
