"""Golden traces of the learners: 20 updates from recorded batches, compared with recorded results on both backends.

A trace has hashes of its batches, of the first parameters and of the noise; and the losses and priorities of every
update, the last parameters, and actions. One trace holds for both backends, any number of threads and all processors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import adapter_learners as adapter
import numpy as np
import pytest
import store
from batches import CHOICE, CHOICES, ENVIRONMENTS, GOALS, IMAGE, JOINT, NUMBERS, PARTS, ROWS, STEPS, VECTOR, Source

PART, UPDATES = "learners", 20
FEW = 4  # with images: of 100,000 inputs of a ReLU, one is so close to 0 that rounding changes its gradient
Arrays = dict[str, Any]
SMALL = {"hidden": (16, 12), "head_hidden": (6,), "recurrent_size": 6, "image_features": 8, "minibatches": 2}
SMALL |= {"burn_in": 2, "unroll": 5, "overlap": 3, "epochs": 4}
SMALL |= {"learning_rate": 1e-3}
SLOW = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}  # for cases in which rounding errors grow fast
HER = {"hindsight": "future"}
DECAY = {
    "learning_rate_decay": "cosine",
    "max_grad_norm": 0.1,
    "decoupled_weight_decay": True,
    "learning_rate_final": 0.1,
}


def case(observation: Any, action: Any, masked: bool = False, seeds: tuple[int, ...] = (0,), **options: Any) -> Any:
    return observation, action, masked, seeds, options


# The algorithm is the first word of a name.
CASES = {
    "td3": case(VECTOR, NUMBERS, tau=0.1),
    "td3, other seed": case(VECTOR, NUMBERS, seeds=(5,), tau=0.1),
    "td3, her": case(
        GOALS,
        NUMBERS,
        **HER | DECAY,
        target_update="every_step",
        actor_weight_decay=0.1,
        critic_weight_decay=0.01,
        critic_action_layer=1,
        activation="elu",
    ),
    "td3, one critic": case(
        PARTS, NUMBERS, twin_critic=False, target_noise_clip=(-0.1, 0.1), policy_delay=3, network="layer_norm", **SLOW
    ),
    "td3, lstm": case(VECTOR, NUMBERS, recurrent="lstm", tau=0.1),
    "td3, categorical": case(VECTOR, NUMBERS, tau=0.1, critic="categorical", value_range=(-3.0, 4.0), num_atoms=8),
    "ddpg": case(VECTOR, NUMBERS, tau=0.1, exploration="ou", exploration_final_scale=0.5),
    "ddpg, her": case(
        GOALS,
        NUMBERS,
        **HER,
        critic_weight_decay=0.01,
        initializer="normal",
        initializer_gain=0.3,
        initializer_final_bound=0.003,
    ),
    "ddpg, gru": case(
        PARTS, NUMBERS, recurrent="gru", recurrent_layers=2, learn_from_start=False, critic_hidden=(8,), **SLOW
    ),
    "sac": case(VECTOR, NUMBERS, tau=0.1, temperature_learning_rate=1e-2),
    "sac, her": case(
        GOALS, NUMBERS, **HER | DECAY, learn_temperature=False, temperature=0.2, network="simba", hidden=(8,)
    ),
    "sac, lstm": case(VECTOR, NUMBERS, recurrent="lstm", target_entropy_scale=0.5, max_grad_norm=0.5),
    "sac, categorical": case(VECTOR, NUMBERS, tau=0.1, critic="categorical", num_atoms=21),
    "crossq": case(VECTOR, NUMBERS, activation="tanh"),
    "crossq, her": case(GOALS, NUMBERS, **HER | SLOW, activation="tanh", network="batch_norm", policy_delay=1),
    "crossq, gru": case(VECTOR, NUMBERS, recurrent="gru", activation="tanh"),
    "crossq, categorical": case(VECTOR, NUMBERS, activation="tanh", critic="categorical", policy_delay=2, **SLOW),
    "flashsac": case(VECTOR, NUMBERS, hidden=(8, 8), critic_hidden=(12, 12), tau=0.1),
    "discretesac": case(VECTOR, CHOICE, tau=0.1),
    "discretesac, her, masks": case(GOALS, CHOICE, masked=True, **HER | DECAY, target_entropy_scale=0.5),
    "discretesac, lstm, masks": case(VECTOR, CHOICE, masked=True, recurrent="lstm"),
    "dqn": case(VECTOR, CHOICE, target_period=7, huber_delta=0.5, activation="tanh", seeds=(1,)),
    "dqn, masks": case(
        PARTS,
        CHOICE,
        masked=True,
        **DECAY | {"weight_decay": 0.1},
        double=False,
        dueling=False,
        huber_delta=0.0,
        rescale_values=True,
        target_period=1,
        tau=0.3,
    ),
    "dqn, image": case(IMAGE, CHOICE, target_period=1, tau=0.3),
    "dqn, lstm, masks": case(VECTOR, CHOICE, masked=True, recurrent="lstm", target_period=1, tau=0.3),
    "r2d2": case(VECTOR, CHOICE, target_period=3),
    "r2d2, gru, masks": case(
        PARTS,
        CHOICE,
        masked=True,
        recurrent="gru",
        recurrent_layers=2,
        learn_from_start=False,
        target_period=1,
        tau=0.3,
    ),
    "dqfd": case(VECTOR, CHOICE, target_period=3),
    "dqfd, other weights": case(
        PARTS,
        CHOICE,
        n_step_weight=0.7,
        one_step_weight=1.3,
        margin_weight=2.0,
        margin_in_priority=True,
        rescale_values=True,
        decoupled_weight_decay=False,
        weight_decay=0.01,
        target_period=3,
    ),
    "dqfd, lstm": case(VECTOR, CHOICE, recurrent="lstm", target_period=1, tau=0.3),
    "r2d3": case(VECTOR, CHOICE, target_period=1, tau=0.3),
    "r2d3, paper": case(
        VECTOR, CHOICE, one_step_weight=0.0, margin_weight=0.0, recurrent="gru", target_period=2, learning_rate=3e-4
    ),
    "bc": case(VECTOR, CHOICE),
    "bc, without memory": case(PARTS, CHOICE, recurrent="none", **DECAY | {"weight_decay": 0.1}),
    "ppo": case(VECTOR, CHOICE),
    "ppo, numbers": case(
        VECTOR,
        NUMBERS,
        clip_value=True,
        learning_rate_decay="linear",
        clip_range_decay="linear",
        normalize_advantages=False,
        entropy_coefficient=0.05,
        max_grad_norm=0.05,
        initial_log_std=-0.5,
        zero_biases=False,
    ),
    "ppo, masks": case(PARTS, CHOICES, masked=True, shared_torso=True, max_grad_norm=0.0, value_coefficient=1.0),
    "ppo, joint actions": case(VECTOR, JOINT, learning_rate_kl=0.01, network="simba", hidden=(8,)),
    "ppo, image": case(IMAGE, CHOICE, shared_torso=True, hidden=(), zero_biases=False, learning_rate=1e-4),
    "ppo, lstm, masks": case(VECTOR, CHOICE, masked=True, recurrent="lstm"),
    "ppo, gru": case(VECTOR, NUMBERS, recurrent="gru", shared_torso=True),
}


# Another algorithm needs no entry, only a trace: `GOLDEN_RECORD=1 pytest -n 0 tests/golden -k "learner and NAME"`.
CASES |= {
    name: case(VECTOR, NUMBERS if "Box" in kind.actions else CHOICE)
    for name, kind in adapter.ALGORITHMS.items()
    if name not in {known.split(",")[0] for known in CASES}
}


@pytest.mark.parametrize("name", CASES)
def test_learner_matches_trace(name: str, backend: str):
    replay(backend, name)


def test_multi_seed_learner_matches_trace(backend: str):
    replay(backend, "td3", "td3, other seed")


def replay(backend: str, *names: str) -> None:
    kind, seeds = adapter.ALGORITHMS[names[0].split(",")[0]], [seed for name in names for seed in CASES[name][3]]
    observation, action, masked, _, options = CASES[names[0]]
    known = {option: value for option, value in SMALL.items() if option in kind.options()}
    together = adapter.build(backend, kind(**known | options), observation, action, seeds)
    one = together[0]
    if names[0] == "crossq":
        one.start_counts_at(99_990)  # renormalization starts after 100,000 batches
    source = Source(one.kind, observation, action, masked, one.experts, one.one_step, one.carry)
    count = UPDATES if observation is not IMAGE else FEW
    batches = [source.batch(update) for update in range(count // one.epochs)]
    initial = [learner.parameters() for learner in together]
    updates: list[list[Any]] = [[] for _ in together]
    for number, batch in enumerate(batches):
        progress = [(number * one.epochs + epoch) / count for epoch in range(one.epochs)]
        for all_of_one, some in zip(updates, adapter.update(together, batch, progress), strict=True):
            all_of_one += some
    for name, learner, first, own in zip(names, together, initial, updates, strict=True):
        noise, metrics, priorities = zip(*own, strict=True)
        reported = sorted({metric for each in metrics for metric in each})
        numbers: Arrays = {f"metric {metric}": [each.get(metric, np.nan) for each in metrics] for metric in reported}
        if priorities[0] is not None:
            numbers["priority"] = [np.asarray(priority) for priority in priorities]
        last = learner.parameters()
        numbers |= {key: projected(value) for key, value in last.items()}
        hashes = {"batches": batches, "first parameters": dict(sorted(first.items())), "noise": noise}
        for numpy in (False, True):
            if (acted := act(learner, source, numpy)) is not None:
                compare(name, hashes, numbers | acted, record=backend == "torch" and len(names) == 1 and not numpy)


def act(learner: adapter.Learner, source: Source, numpy: bool) -> Arrays | None:
    """Return best and exploring actions; recurrent networks act on several observations in turn."""
    random = np.random.default_rng(41)
    steps = [source.observed(random, ROWS)]
    if learner.carry:
        seen = source.stretch(random, ENVIRONMENTS, STEPS, np.arange(STEPS))
        seen["starts"][2, 3] = True
        carry, _ = seen.pop("carry"), seen.pop("at")
        steps = [part(seen, step) | {"fresh": seen["starts"][:, step], "at": None} for step in range(STEPS)]
    found: dict[str, list[Any]] = {}
    for fields in steps:
        allowed = None if fields["allowed"] is None else fields["allowed"].reshape(-1, fields["allowed"].shape[-1])
        noise = learner.noise(random, ENVIRONMENTS if learner.carry else ROWS, allowed)
        fields |= {"carry": carry} if learner.carry else {}
        best, explored = (learner.act(fields, given, numpy) for given in (None, noise))
        if best is None or explored is None:
            return None
        carry = {name: explored[f"carry/{name}"] for name in learner.carry}
        for name, value in {"noise": noise, "best": best["action"], **explored}.items():
            found.setdefault(f"acting, {name}", []).append(value)
    return found


def part(tree: Any, step: int) -> Any:
    if isinstance(tree, dict):
        return {name: part(value, step) for name, value in tree.items()}
    return tree if tree is None or tree.ndim < 2 else tree[:, step : step + 1]


def projected(array: np.ndarray) -> np.ndarray:
    """Return a small array; of a large one, its inner products with 128 fixed directions."""
    if array.size <= 1024:
        return array
    return np.random.default_rng(41).standard_normal((128, array.size)) @ array.ravel() / np.sqrt(128)


def flat(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [array for each in tree for array in flat(each)]
    return [] if tree is None else [tree]


def compare(name: str, hashed: dict[str, Any], numbers: Arrays, record: bool) -> None:
    arrays = {name: np.asarray(value, np.float32) for name, value in sorted(numbers.items())}
    results = {
        "hashes": [f"{what}: {store.digest(*flat(tree))}" for what, tree in hashed.items()],
        "names": [f"{name} {array.shape}" for name, array in arrays.items()],
        "values": np.concatenate([array.ravel() for array in arrays.values()]),
    }
    store.compare(PART, name, results, partial(close, arrays), record)


def close(arrays: dict[str, np.ndarray], entry: str, recorded: np.ndarray, now: np.ndarray) -> None:
    """Compare metrics and priorities by value, and all other arrays by the norm of the difference."""
    if not entry.endswith("/values"):
        assert now.tolist() == recorded.tolist(), entry
        return
    cuts = np.cumsum([array.size for array in arrays.values()])[:-1]
    for (name, array), then in zip(arrays.items(), np.split(recorded, cuts), strict=True):
        if name.startswith(("metric", "priority")):
            np.testing.assert_allclose(array.ravel(), then, rtol=1e-4, atol=1e-6, err_msg=f"{entry}: {name}")
            continue
        difference, norm = np.linalg.norm(array.ravel() - then), np.linalg.norm(then)
        assert difference <= 1e-4 * norm + 1e-7, f"{entry}: {name} differs by {difference / norm:.1e} of its norm"
