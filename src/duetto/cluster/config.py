"""The options of a run whose environments step on a Ray cluster."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from duetto.algorithms.base import Algorithm
from duetto.algorithms.option_bounds import CountOrZero, check_fields
from duetto.errors import UsageError
from duetto.install_hint import install

if TYPE_CHECKING:  # the options alone import neither environments nor Ray
    from duetto.buffers import Shards
    from duetto.cluster.transport import Transport
    from duetto.environments import VecEnv
    from duetto.learners import Policy
    from duetto.storage.config import Config
    from duetto.training.collector import Source
    from duetto.training.normalizer import Normalizer

Mode = Literal["sync", "async"]

KEPT = ("mode", "actors", "block")  # what may decide numbers
BLOCK_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster whose processes, called actors, act in a run's environments.

    Actors act with parameters that are a block old, so the numbers are not those of a run in one process. In the mode
    `sync` they depend on the number of actors and the block length, and on no timing and no process that dies. A
    resumed run keeps its mode, its block length and, in `sync`, its number of actors. Actors of networks for images,
    and of custom networks, load the run's framework; all others act in NumPy.
    """

    address: str | None = None
    """Ray's, such as "auto" or "HOST:6379"; None is a cluster on this machine, for this run alone."""
    actors: CountOrZero = 0
    """Processes that the environments are spread over; 0 is 2."""
    mode: Mode | None = None
    """"sync": actors wait for the learner and for each other, and the run is repeatable; "async": they do not. None is
    "sync"."""
    block: CountOrZero = 0
    """Vector steps that an actor makes per request; 0 is a rollout, or 16."""
    replay_shards: CountOrZero = 0
    """Processes that the replay memory is spread over, by environments; 0: it is in the run's own. It decides no number
    beyond rounding."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mode not in (None, *get_args(Mode)):
            raise UsageError(f"mode is {self.mode!r}; it must be one of {', '.join(get_args(Mode))}.")
        if find_spec("ray") is None:
            raise UsageError(f"A cluster needs Ray, which is not installed. Install: {install('cluster')}")

    def beginning(self, algorithm: Algorithm) -> Cluster:
        """The options of a new run, with the mode chosen and checked. Raises UsageError where they do not fit."""
        self._check_shards(algorithm)
        if algorithm.memory().on_policy and self.mode == "async":
            raise UsageError(
                f"{algorithm.name()} learns from rollouts; each needs the same number of steps of every "
                "environment. Use the mode sync."
            )
        return replace(self, mode=self.mode or "sync")

    def resuming(self, kept: dict[str, Any], num_envs: int) -> Cluster:
        """The options of a run of `num_envs` environments that continues, whose config `kept` some. Raises UsageError
        where others were given.
        """
        if not kept:
            raise UsageError(
                "The run started without a cluster, where its numbers are others. Resume it without one, or start "
                "another."
            )
        for name in KEPT:
            given = getattr(self, name)
            if name == "actors":  # those without an environment were left out
                given = min(given, num_envs)
            if name in kept and given and given != kept[name]:
                raise UsageError(
                    f"The run continues with {name} {kept[name]}, which decides its numbers, not {given}. Leave it "
                    "out, or start a new run."
                )
        if unknown := kept.keys() - set(KEPT):
            raise UsageError(f"cluster.{min(unknown)} in config.yaml is nothing that is known. Take it out.")
        return replace(self, **kept)

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

    # ------------------------------------------------------------------------------------------- see Execution
    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> VecEnv:
        """Make the environments, in actors; closing them ends the actors, and the cluster if it was started here."""
        from duetto.cluster import launch

        self._check_shards(config.algorithm)  # of a run that is resumed
        return launch.make_stepper(self, config, environment, notices, options)

    def make_source(self, config: Config, stepper: VecEnv, learner: Policy, normalizer: Normalizer) -> Source:
        """Make the source of experience: the actors."""
        from duetto.cluster import launch

        return launch.make_source(self, config, stepper, learner, normalizer)

    def make_shards(self, config: Config, stepper: VecEnv) -> Shards | None:
        """Start replay shards in separate processes; None if the buffer is in the run's process."""
        from duetto.cluster import launch

        return launch.make_shards(self, stepper)

    def decided(self, stepper: VecEnv) -> dict[str, Any]:
        """Return the options that decide numbers."""
        from duetto.cluster import launch

        return launch.decided(stepper)

    def connect(self, processes: int) -> Transport:
        """Connect to the cluster. UsageError if it has too few CPUs for the processes."""
        show_token(self.address)
        from duetto.cluster.ray import RayTransport

        return RayTransport(self.address, processes)


def show_token(address: str | None) -> None:
    """Make Ray's client send the user's token. Call this before Ray is imported."""
    if address is None or not address.startswith("ray://") or "ray" in sys.modules:
        return
    kept = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if kept or (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
