"""Acting one vector step behind, so that the host works while the device learns.

    device   ...| learn from step t - 1 .............. | learn from step t ................ |
    host        | act, step t, remember, draw | waits  | act, step t + 1, remember, draw | waits
                  as step t - 2 left the policy          as step t - 1 left it

The actions of step t are chosen by the parameters as they were before step t - 1 was learned from: always exactly one
step older than without this, whoever is faster. At the first two steps these are the initial ones, or what was learned
from demonstrations before. All others, evaluations and checkpoints among them, see the newest ones and wait for them; a
checkpoint holds the older ones beside these, so that who goes on from it acts as if nothing had happened.

They act in NumPy: a framework's own call would wait its turn behind the update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.errors import UsageError
from duetto.functional import forms
from duetto.functional.forms import ARRAY, Each
from duetto.learners.acting import Acting, HostActing, Method, in_numpy
from duetto.learners.base import Learner
from duetto.learners.parameters import Parameters, matched
from duetto.networks.initial import parameter_shapes


class Behind(Acting):
    """The policy of a learner, one vector step older."""

    def __init__(self, learner: Learner) -> None:
        """Make the learner learn beside its caller from here on; to be called before its first update.

        Raises:
            UsageError: The algorithm learns from rollouts, or NumPy cannot act with its networks.
        """
        super().__init__(learner.algorithm, learner.specs)
        _check(learner)
        self._learner, self._host = learner, HostActing(learner.algorithm, learner.specs)
        self._ahead: Callable[[], Parameters] | None = None  # what to act with, not waited for yet
        self._parameters: Parameters = {}  # what is acted with; none yet: the learner's at the next action
        self._updates = -1  # after how many the learner had them; -1: unknown
        learner.learn_beside()

    def catch_up(self) -> None:
        """Act from here on with the parameters as they are now. Called once a step, before it is learned from."""
        if self._updates != self._learner.updates:
            self._updates, self._ahead = self._learner.updates, self._learner.acting_parameters()

    def _acting(self, method: Method, obs: Tree, *noise: np.ndarray | None) -> Any:
        """See `Acting`."""
        self._look()
        return self._host._acting(method, obs, *noise)

    def _look(self) -> None:
        """Wait for the parameters to act with."""
        if self._ahead is None and not self._parameters:
            self.catch_up()
        if self._ahead is not None:
            self._parameters, self._ahead = self._ahead(), None
            self._host.use(self._parameters)

    def state_dict(self) -> dict[str, Any]:
        """The parameters that choose the next actions; empty where no step has been made."""
        if self._updates < 0 and not self._parameters:
            return {}
        self._look()
        return {name: {key: np.array(array) for key, array in own.items()} for name, own in self._parameters.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises CheckpointError where it is of other networks."""
        self._updates, self._ahead, self._parameters = -1, None, {}
        if state:
            forms.check(state, Each(Each(ARRAY)), "acting")
            self._parameters = {
                name: {key: np.array(array, np.float32) for key, array in own.items()}
                for name, own in (
                    (name, matched(state.get(name, {}), parameter_shapes(self.specs[name]), name))
                    for name in self.algorithm.acting_networks
                )
            }
            self._host.use(self._parameters)


def _check(learner: Learner) -> None:
    name = learner.algorithm.name()
    if learner.on_policy:
        raise UsageError(
            f"{name} learns from what its newest policy did, so it cannot act behind. Leave out act_behind "
            "(--act-behind): it is for algorithms with a replay memory."
        )
    if not in_numpy(learner.algorithm, learner.specs):
        raise UsageError(
            f"{name} would act in NumPy to act behind, which does not act on images or with networks of your own. "
            "Leave out act_behind (--act-behind)."
        )
