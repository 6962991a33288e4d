"""Evaluations in a process of their own, so that they do not delay the run.

    run         learns | step s: sends the parameters | learns ............... | writes the row of step s
    evaluator          |                              | its episodes, a second at a time |

The evaluator uses the run's framework, so its actions are those that the run would choose, bit by bit. It answers once
a second, so that one that hangs is noticed. A new process starts the evaluation again.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NamedTuple

from typing_extensions import override

from duetto import learners
from duetto.algorithms.base import Algorithm
from duetto.cluster.actor_pool import INFINITY, ActorPool
from duetto.cluster.actor_server import Request
from duetto.environments import VecEnv, pickling
from duetto.environments.errors import EnvironmentFault
from duetto.learners.parameters import Parameters
from duetto.training.evaluation import Evaluation, evaluating
from duetto.training.evaluator import Evaluator
from duetto.training.normalizer import Normalizer
from duetto.training.policy import EvaluationPolicy

PIECE = 1.0  # seconds of an evaluation between two answers


class EvaluatorRole(NamedTuple):
    """The role of a process that evaluates."""

    recipe: bytes
    algorithm: Algorithm
    backend: Any
    precision: Any
    threads: int
    episodes: int
    seed: int

    def make(self, share: range) -> EvaluatorActor:
        """Make the evaluator."""
        return EvaluatorActor(pickling.make(self.recipe, num_envs=len(share)), self)


class EvaluatorActor:
    """An evaluator in its process."""

    def __init__(self, stepper: VecEnv, role: EvaluatorRole) -> None:
        self._stepper, self._role = stepper, role
        stepper.name += " (evaluation)"
        self._spaces = (stepper.observation_space, stepper.action_space)
        how: dict[str, Any] = {"seed": role.seed, "precision": role.precision, "threads": role.threads}
        self._learner = learners.build(role.backend, role.algorithm, *self._spaces, **how)
        self._steps: Generator[str, None, Evaluation] | None = None

    def evaluate(self, parameters: Parameters, scaling: dict[str, Any]) -> Evaluation | bool:
        """Start an evaluation with these parameters and the normalizer's state; return as `go_on` does."""
        observation, action = self._spaces
        self._learner.load_parameters(parameters)
        normalizer = Normalizer(observation, *self._role.algorithm.observation_scaling())
        normalizer.load_state_dict(scaling)
        policy = EvaluationPolicy(self._learner, normalizer, action, self._role.seed)
        self._steps = evaluating(policy, self._stepper, self._role.episodes, self._role.seed)
        return self.go_on()

    def go_on(self) -> Evaluation | bool:
        """Evaluate for about a second. The result; True if it is not finished, False if none was started here."""
        if self._steps is None:
            return False
        until = time.monotonic() + PIECE
        try:
            next(self._steps)
            while time.monotonic() < until:
                next(self._steps)
        except StopIteration as ended:
            self._steps = None
            return ended.value
        return True

    def state(self) -> dict[str, Any]:
        """Return {}: a new process starts the evaluation again."""
        return {}

    def close(self) -> None:
        """Release the environments."""
        self._stepper.close()


class RemoteEvaluator(Evaluator):
    """Evaluates in an actor of the cluster."""

    def __init__(self, pool: ActorPool) -> None:
        self._pool = pool
        self._sent: Any = None

    @override
    def begin(self, parameters: Parameters, scaling: dict[str, Any]) -> None:
        self._sent = (parameters, scaling)
        self._evaluate()

    def _evaluate(self) -> None:
        self._pool.post(0, [Request("evaluate")], *map(self._pool.transport.put, self._sent))

    @override
    def look(self, wait: bool) -> Evaluation | None:
        try:
            while replies := self._pool.wait([0], patience=INFINITY if wait else 0.0):
                [result] = replies[0].values
                if isinstance(result, Evaluation):
                    self._sent = None
                    return result
                if result:
                    self._pool.post(0, [Request("go_on")])
                else:  # a new process, which knows of none
                    self._evaluate()
        except EnvironmentFault as fault:
            raise fault.told("The evaluation", 0) from fault.__cause__
        return None

    @override
    def close(self) -> None:
        self._pool.close()
