"""All internal names of learners: after a rename, change only this file.

No commit that changes this file may change a trace.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from duetto import environments, learners
from duetto.algorithms import ALGORITHMS as ALGORITHMS
from duetto.algorithms.base import Batch, OneStep, RolloutBatch, RolloutSpec, SequenceBatch, SequenceSpec
from duetto.functional.pytree import tree_leaves
from duetto.learners import multi_seed
from duetto.learners.policy import NumpyPolicy, in_numpy
from duetto.networks import masks
from duetto.networks.layers import SequenceInput

# ---------------------------------------------------------------------------------------------------- learners
NAMES: dict[str, str] = {}  # words in names of metrics, networks, parameters and hidden states -> words in the traces
WINDOW = (
    "previous_action",
    "previous_reward",
    "starts",
    "carry",
    "fresh",
    "at",
)  # the fields of SequenceInput but `obs`
Fields = dict[str, Any]


class Learner:
    """A learner that takes and gives NumPy arrays by name."""

    def __init__(self, learner: Any, space: Any) -> None:
        self._learner, self._space, spec = learner, space, learner.algorithm.memory()
        kinds = ("rollout", "recurrent_rollout") if isinstance(spec, RolloutSpec) else ("transitions", "sequences")
        self.kind: str = kinds[getattr(spec, "recurrent", isinstance(spec, SequenceSpec))]
        self.epochs: int = getattr(spec, "epochs", 1)
        self.experts: float = getattr(getattr(spec, "demonstrations", None), "share", np.nan)
        self.one_step: bool = getattr(spec, "one_step", False)
        self._states = {_name(name): name for name in learner.carry_shapes()}
        self.carry = {name: learner.carry_shapes()[own] for name, own in sorted(self._states.items())}

    def parameters(self) -> dict[str, np.ndarray]:
        """Return all parameters, those of target networks too."""
        nets = self._learner.parameters().items()
        return {_name(f"{net}/{name}"): value for net, own in nets for name, value in own.items()}

    def start_counts_at(self, batches: int) -> None:
        """Set how many batches the running statistics of batch renormalization have seen."""
        nets = self._learner.parameters()
        for net in nets.values():
            net |= {name: np.full_like(value, batches) for name, value in net.items() if name.endswith(".count")}
        self._learner.load_parameters(nets)

    def noise(self, random: np.random.Generator, size: int, allowed: np.ndarray | None) -> np.ndarray:
        """Draw exploration noise for `size` environments in the middle of a run."""
        state = np.zeros((size, self._space.size), np.float32)
        return self._learner.algorithm.explorer().draw(random, state, 50, 100, self._space, allowed)[0]

    def act(self, fields: Fields, noise: np.ndarray | None, numpy: bool) -> dict[str, np.ndarray] | None:
        """Act, by the framework or in NumPy (None: it cannot); return actions, what comes with them, hidden states."""
        algorithm, specs, ask = self._learner.algorithm, self._learner.specs, self._learner._act
        if numpy:
            if not in_numpy(algorithm, specs):
                return None
            policy = NumpyPolicy(algorithm, specs)
            policy.load_parameters(self._learner.parameters())
            ask = policy.call_with_carry
        found, carry = ask("act" if noise is None else "collect", self._observed(fields), noise)
        action, extras = found if isinstance(found, tuple) else (found, {})
        extras |= {f"carry/{_name(name)}": part for name, part in carry.items()}
        return {name: np.asarray(part) for name, part in {"action": action, **extras}.items()}

    def _observed(self, fields: Fields) -> Any:
        obs = masks.with_mask(fields["obs"], fields["allowed"])
        if not self.carry:
            return obs
        carry = {self._states[name]: part for name, part in fields["carry"].items()}
        return SequenceInput(obs, *({**fields, "carry": carry}[name] for name in WINDOW))

    def _batch(self, fields: Fields) -> Any:
        given = fields | {"obs": self._observed(fields)}
        if given.get("one_step"):
            given["one_step"] = OneStep(*given["one_step"])
        if "next_obs" in given:
            given["next_obs"] = masks.with_mask(given["next_obs"], given["next_allowed"])
        kind = RolloutBatch if "advantage" in given else SequenceBatch if "mask" in given else Batch
        return kind(**{name: given[name] for name in kind._fields if name in given})


def build(backend: Any, algorithm: Any, observation: Any, action: Any, seeds: Sequence[int]) -> list[Learner]:
    """Build a learner for each seed; several are computed side by side."""
    spaces = [environments.from_gymnasium(space) for space in (observation, action)]
    how: dict[str, Any] = {"device": "cpu", "precision": "float32", "threads": 1 if backend == "torch" else 0}
    make = learners.build if len(seeds) == 1 else multi_seed.SeedGroup(seeds).learner
    return [Learner(make(backend, algorithm, *spaces, seed=seed, **how), spaces[1]) for seed in seeds]


def update(together: list[Learner], fields: Fields, progress: list[float]) -> list[list[Any]]:
    """Update the learners as often as there is progress; return for each its updates' noise, metrics and priorities."""
    every, batch = [each._learner for each in together], together[0]._batch(fields)
    before, found = [copy.deepcopy(each.random) for each in every], []
    if len(every) == 1:
        found = [every[0].update_each([batch] * len(progress), progress)]
    else:
        asked = {
            i: multi_seed.SeedRequest("update_alike", (e._prepare(batch, *progress),)) for i, e in enumerate(every)
        }
        found = list(every[0]._group.answer(asked).values())
    results = []
    for each, random, metrics in zip(every, before, found, strict=True):
        size, own = len(batch.weight), each.algorithm
        noise = [tree_leaves((own.split(random, size), own.draw(random, batch))) for _ in progress]
        assert random.bit_generator.state == each.random.bit_generator.state, "other numbers were drawn"
        values = [dict(zip(map(_name, one.names), np.asarray(one.values), strict=True)) for one in metrics]
        results.append(list(zip(noise, values, [one.priority for one in metrics], strict=True)))
    return results


def _name(name: str) -> str:
    return re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), name)
