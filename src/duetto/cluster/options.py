"""The options of a run whose environments live on a Ray cluster."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from duetto.algorithms.base import Algorithm
from duetto.algorithms.fields import CountOrZero, check_fields
from duetto.errors import UsageError
from duetto.extras import install

if TYPE_CHECKING:  # the options alone import neither environments nor Ray
    from duetto.cluster.transport import Transport
    from duetto.environments import Stepper
    from duetto.learners import Acting
    from duetto.learners.ranks import Machines
    from duetto.memory import Shards
    from duetto.storage.config import Config
    from duetto.training.collector import Source
    from duetto.training.normalizer import Normalizer
    from duetto.training.place import Evaluator

Pace = Literal["exact", "lockstep", "free"]


KEPT = ("pace", "actors", "block")  # what of a pace with blocks may decide numbers
BLOCK_BYTES = 8 * 2**20
BLOCK = 16  # vector steps, where nothing else is better


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster whose processes, called actors, step a run's environments, and may act in them.

    With the pace `exact` the run's numbers are those of a run in one process, bit by bit, on any number of actors
    and whichever of them die. With `lockstep` they are the same for a given number of actors. In a run that is
    resumed, options that decide its numbers keep their values where None or 0 is given.
    """

    address: str | None = None
    """Ray's, such as "auto" or "HOST:6379"; None is a cluster on this machine, for this run alone."""
    actors: CountOrZero = 0
    """Processes that the environments are spread over; 0 is 2."""
    pace: Pace | None = None
    """Who waits for whom; None is "lockstep" for algorithms that learn from rollouts, "exact" for all others."""
    block: CountOrZero = 0
    """Vector steps that an actor makes by itself; 0 is a rollout, or 16."""
    ahead: CountOrZero = 0
    """With the pace "free", steps at most that are made before they are learned from; 0 is two blocks of each actor."""
    replay_shards: CountOrZero = 0
    """Processes that the replay memory is spread over, by environments; 0: it is in the run's own. It decides no number
    beyond rounding."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.pace not in (None, *get_args(Pace)):
            raise UsageError(f"pace is {self.pace!r}; it must be one of {', '.join(get_args(Pace))}.")
        if find_spec("ray") is None:
            raise UsageError(f"A cluster needs Ray, which is not installed. Install: {install('cluster')}")

    def beginning(self, algorithm: Algorithm) -> Cluster:
        """The options of a new run, with the pace chosen and checked. Raises UsageError where they do not fit."""
        self._check_shards(algorithm)
        rollouts = algorithm.memory().on_policy
        if rollouts and self.pace == "free":
            raise UsageError(
                f"{algorithm.name()} learns from rollouts, of which each needs the same number of steps of every "
                "environment. Use the pace lockstep."
            )
        return self._checked(replace(self, pace=self.pace or ("lockstep" if rollouts else "exact")))

    def resuming(self, kept: dict[str, Any], num_envs: int) -> Cluster:
        """The options of a run of `num_envs` environments that goes on, whose config `kept` some. Raises UsageError
        where others were given.
        """
        kept = kept or {"pace": "exact"}
        for name in KEPT:
            given = getattr(self, name)
            if name == "actors":  # those without an environment were left out
                given = min(given, num_envs)
            if name in kept and given and given != kept[name]:
                raise UsageError(
                    f"The run goes on with {name} {kept[name]}, which decides its numbers, not {given}. Leave it out, "
                    "or start a new run."
                )
        if unknown := kept.keys() - set(KEPT):
            raise UsageError(f"cluster.{min(unknown)} in config.yaml is nothing that is known. Take it out.")
        return self._checked(replace(self, **kept))

    def _checked(self, cluster: Cluster) -> Cluster:
        for name, paces in (("block", ("lockstep", "free")), ("ahead", ("free",))):
            if getattr(cluster, name) and cluster.pace not in paces:
                raise UsageError(f"{name} is of the pace {' or '.join(paces)}; this one is {cluster.pace}.")
        return cluster

    def _check_shards(self, algorithm: Algorithm) -> None:
        spec = algorithm.memory()
        if self.replay_shards and spec.on_policy:
            raise UsageError(
                f"{algorithm.name()} learns from rollouts and has no replay memory that could be spread. Leave out "
                "replay_shards (--replay-shards)."
            )
        if self.replay_shards and getattr(spec, "hindsight", None) is not None:
            raise UsageError(
                "Hindsight asks the environment what other goals would have brought while a batch is drawn, which "
                "shards of the memory cannot. Leave out replay_shards (--replay-shards), or hindsight."
            )

    # ------------------------------------------------------------------------------------------- see Place
    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> Stepper:
        """A stepper of environments in actors; closing it ends the actors, and the cluster if it was started here."""
        from duetto.cluster.placing import place

        self._check_shards(config.algorithm)  # of a run that goes on
        num_envs, wanted = options["num_envs"], self.actors or 2
        actors = min(wanted, num_envs)
        if actors < wanted:
            notices.append(
                f"{num_envs} environment{'s' * (num_envs > 1)} on {actors} of the {wanted} actors: the others "
                "would have none. Give more --num-envs."
            )
        if num_envs < self.replay_shards:
            notices.append(
                f"The replay memory of {num_envs} environment{'s' * (num_envs > 1)} is in {num_envs} of the "
                f"{self.replay_shards} shards: the others would have none. Give more --num-envs."
            )
        acts = None if self.pace == "exact" else config
        beside = bool(config.run.evaluate_every) + min(self.replay_shards, num_envs) + _beside(config)
        processes = actors + beside
        return place(environment, options, lambda: self.connect(processes), actors, notices, acts)

    def make_source(self, config: Config, stepper: Stepper, learner: Acting, normalizer: Normalizer) -> Source:
        """The source of experience: this process acts, or the actors do."""
        from duetto.cluster import pacing

        return pacing.source(self, config, stepper, learner, normalizer)

    def machines(self, config: Config, stepper: Stepper) -> Machines:
        """The machines of the cluster; if it is this machine only, without Ray."""
        from duetto.cluster.placing import machines_of

        return machines_of(config, stepper)

    def make_evaluator(self, config: Config, environment: Any, stepper: Stepper) -> Evaluator | None:
        """An evaluator in an actor of its own; None if the run does not evaluate."""
        from duetto.cluster.placing import place_evaluator

        return place_evaluator(config, environment, stepper)

    def make_shards(self, config: Config, stepper: Stepper) -> Shards | None:
        """Memory shards in processes beside the actors, or None. At the pace `free` a lost one is begun again; else
        the run goes back to its last checkpoint.
        """
        from duetto.cluster.placing import place_shards

        count = min(self.replay_shards, stepper.num_envs)
        return place_shards(config, stepper, count, self.pace == "free") if count else None

    def decided(self, stepper: Stepper) -> dict[str, Any]:
        """See Place."""
        from duetto.cluster import pacing

        return pacing.decided(stepper)

    def connect(self, actors: int) -> Transport:
        """Connect to the cluster; `actors` is the number of all processes. UsageError if it has no room for them."""
        show_token(self.address)
        from duetto.cluster.ray import RayTransport

        return RayTransport(self.address, actors, batches=self.replay_shards > 0)


def _beside(config: Config) -> int:
    """Number of learners in processes of the cluster. With PyTorch the run's own process is the first learner; with JAX
    and several learners it is none.
    """
    run = config.run
    return run.learners - 1 if run.backend == "torch" or run.learners == 1 else run.learners


def show_token(address: str | None) -> None:
    """Have Ray's client show the user's token, as the rest of Ray does by itself. Call it before Ray is imported."""
    if address is None or not address.startswith("ray://") or "ray" in sys.modules:
        return
    kept = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if kept or (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
