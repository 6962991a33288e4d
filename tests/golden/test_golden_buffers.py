"""Replay buffers and rollouts: all items that can be drawn, and the items that one seed draws.

A table of contents names rows by the keys in their observations, so it does not depend on how a buffer stores them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import adapter
import numpy as np
import pytest
import streams
from store import compare
from streams import Arrays, near, series, stream, table

import duetto

LENGTHS = [[1, 4, 7], [3], [9, 2, 1, 5]]  # of three environments' episodes
SEQUENCE = {"recurrent": "lstm", "burn_in": 2, "unroll": 3, "overlap": 2, "n_step": 3}
Options = dict[str, Any]


def replay(algorithm: Any = duetto.DQN, capacity: int = 45, **options: Any) -> Any:
    """Return an algorithm with a small replay buffer."""
    return algorithm(batch_size=32, replay_capacity=capacity, discount=0.9, **options)


def demonstrations() -> list[SimpleNamespace]:
    """Return two episodes of experts, the environments 100 and 101."""
    found = []
    for number, length in enumerate((4, 8)):
        steps = stream([[length]], length, discrete=True)
        obs = np.stack([step["obs"][0] for step in steps] + [steps[-1]["next_obs"][0]]) + np.float32([100 + number, 0])
        action, reward = (np.concatenate([step[name] for step in steps]) for name in ("action", "reward"))
        ends = {"terminated": number == 0, "truncated": number == 1}
        found.append(SimpleNamespace(obs=obs, action=action, reward=reward, **ends))
    return found


def filled(
    algorithm: Any, steps: list[Any], restored: bool = False, cut: int = 0, watch: Any = None, **how: Any
) -> Any:
    """Return a buffer with `steps`.

    With `restored` it is saved and restored near the end, from two segments. At step `cut` two episodes are
    interrupted. `watch` gets the buffer after each step.
    """
    kind, discrete = how.pop("kind", "key"), steps[0]["action"].dtype.kind == "i"
    spaces = streams.SPACES[kind], streams.CHOICE if discrete else streams.NUMBERS
    buffer, kept = adapter.Buffer(algorithm, *spaces, **how), []
    for at, step in enumerate(steps):
        if restored and at in (len(steps) - 9, len(steps) - 3):
            kept.append(buffer.save(kept[-1][2] if kept else None))
        if restored and at == len(steps) - 3:
            buffer = adapter.Buffer(algorithm, *spaces, seed=9, **how)
            buffer.load(kept[-1][0], [segment for _, segment, _ in reversed(kept)])
        if cut and at == cut:
            buffer.interrupt(np.array([True, False, True]))
        buffer.add(step)
        if watch is not None:
            watch(buffer)
    return buffer


def everything(buffer: Any, draws: int = 60, **how: Any) -> Arrays:
    """Draw so often that no item is missed, and return the table of all items."""
    return table([buffer.draw() for _ in range(draws)], **how)


# ------------------------------------------------------------------------------------------------ contents
TRANSITIONS: dict[str, tuple[Options, Options, Options]] = {  # options of the stream, the algorithm, the buffer
    "one step": ({}, {}, {}),
    "three steps": ({}, {"n_step": 3}, {}),
    "gaps": ({"gaps": True}, {"n_step": 3}, {}),
    "nothing lost": ({}, {"n_step": 3, "capacity": 300}, {}),
    "choices": ({"discrete": True}, {"n_step": 2}, {}),
    "broken": ({}, {"n_step": 3}, {"cut": 22}),
    "images": ({"kind": "image"}, {"n_step": 2, "capacity": 30}, {}),
}
SEQUENCES: dict[str, tuple[Options, Options]] = {  # options of the stream, the algorithm
    "burn-in": ({}, {}),
    "not from the start": ({}, {"learn_from_start": False}),
    "no burn-in": ({}, {"burn_in": 0, "overlap": 0, "n_step": 1}),
    "zero states": ({}, {"overlap": 4, "stored_carry": False}),
    "images": ({"kind": "image"}, {"burn_in": 1, "overlap": 1, "n_step": 2}),
}
# Variants that must not change the stored items: options of the algorithm, of the buffer.
VARIANTS: list[tuple[Options, Options]] = [
    *[
        ({"prioritized": prioritized}, {"restored": restored})
        for prioritized in (False, True)
        for restored in (False, True)
    ],
    ({}, {"shards": 2}),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("case", TRANSITIONS)
def test_stored_transitions_match_trace(case: str, variant: tuple[Options, Options]):
    about, options, how = TRANSITIONS[case]
    steps, algorithm = stream(LENGTHS, 31, **about), replay(duetto.TD3, **options | variant[0])
    buffer = filled(algorithm, steps, kind=about.get("kind", "key"), **how | variant[1])
    compare("buffers", f"transitions {case}", everything(buffer))


def sequences(case: str, **options: Any) -> tuple[Any, list[Any], Options]:
    """Return the algorithm, steps with hidden states, and the arguments of the buffer."""
    about, own = SEQUENCES[case]
    steps = stream(LENGTHS, 40, discrete=True, **about, **HIDDEN)
    how = {"kind": "image", "stacked": streams.FRAMES} if "kind" in about else {}
    return replay(**SEQUENCE | own | options), steps, how


HIDDEN = {"carry/h": lambda step: step["env"][:, None] + step["reward"][:, None] / 128 + np.float32([0.25, 0.5])}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("case", SEQUENCES)
def test_stored_sequences_match_trace(case: str, variant: tuple[Options, Options]):
    algorithm, steps, how = sequences(case, capacity=900, **variant[0])
    compare("buffers", f"sequences {case}", everything(filled(algorithm, steps, **how, **variant[1])))


@pytest.mark.parametrize("case", ["burn-in", "images"])
def test_sequences_in_small_buffer_match_trace(case: str):
    algorithm, steps, how = sequences(case, capacity=75)
    seen: list[Arrays] = []
    filled(
        algorithm, steps, **how, watch=lambda buffer: seen.extend(buffer.draw() for _ in range(8 if len(buffer) else 0))
    )
    compare("buffers", f"sequences {case}", table(seen))


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("case", ["burn-in", "images"])
def test_sequences_after_wrap_around_match_trace(case: str, restored: bool):
    algorithm, steps, how = sequences(case, capacity=75)
    compare("buffers", f"sequences left {case}", everything(filled(algorithm, steps, restored, cut=31, **how)))


GOALS = SimpleNamespace(name="", changed=False, reward=streams.goal_reward, terminated=streams.goal_reached)


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_hindsight_goals_match_trace(strategy: str, restored: bool):
    algorithm = replay(duetto.TD3, hindsight=strategy, hindsight_share=0.5)
    buffer = filled(algorithm, stream(LENGTHS, 31, "goal"), restored, kind="goal", goals=GOALS)
    compare("buffers", f"goals {strategy}", everything(buffer, draws=900))


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize(
    ("case", "kind", "options"), [("steps", "DQfD", {"n_step": 3}), ("sequences", "R2D3", SEQUENCE)]
)
def test_stored_demonstrations_match_trace(case: str, kind: str, options: Options, restored: bool):
    algorithm = replay(getattr(duetto, kind), demonstration_share=0.5, **options)
    steps = stream(LENGTHS, 14, discrete=True, **HIDDEN)
    buffer = filled(algorithm, steps, restored, demos=demonstrations())
    compare("buffers", f"demonstrations {case}", everything(buffer, draws=100))


# ------------------------------------------------------------------------------------------------ rollouts
def value(seen: Arrays) -> np.ndarray:
    """Return a value that depends on the key, and on the hidden state if there is one."""
    if "carry/h" not in seen:
        return seen["obs"][:, 1] / 10
    return seen["obs"][:, 0, 1] / 10 + seen["carry/h"][:, 0, 0]


def acted(recurrent: bool) -> Options:
    """Return functions that compute the numbers PPO stores with its actions."""
    kept = {"log_prob": lambda step: -step["obs"][:, 1] / 8, "value": lambda step: step["obs"][:, 1] / 10 + 1}
    if not recurrent:
        return kept
    hidden = {"carry/h": 0.25, "next_carry/h": 0.75}
    return (
        kept
        | {name: lambda step, shift=shift: (step["obs"] + np.float32(shift))[:, None] for name, shift in hidden.items()}
        | {"previous_action": lambda step: step["action"] - 1, "previous_reward": lambda step: step["reward"] - 1}
        | {"starts": lambda step: step["reward"] % 4 == 0, "seen_reward": lambda step: step["reward"]}
    )


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("recurrent", [False, True])
def test_rollouts_match_trace(recurrent: bool, gaps: bool, restored: bool):
    kind = {"recurrent": "lstm"} if recurrent else {}
    algorithm = duetto.PPO(rollout_steps=7, epochs=1, minibatches=1, discount=0.9, gae_lambda=0.8, **kind)
    spaces = streams.KEY, streams.CHOICE
    buffer, found = adapter.Buffer(algorithm, *spaces, value=value), []
    for at, step in enumerate(stream(LENGTHS, 21, gaps=gaps, discrete=True, **acted(recurrent))):
        if restored and at in (3, 12):
            state, _, _ = buffer.save()
            buffer = adapter.Buffer(algorithm, *spaces, value=value)
            buffer.load(state, [])
        if at == 10:
            buffer.interrupt(np.array([False, True, False]))
        buffer.add(step)
        found += [_real(rows) for rows in buffer.due()]
    compare("buffers", f"rollouts{' recurrent' * recurrent}{' gaps' * gaps}", table(found, without=()))


def _real(rows: Arrays) -> Arrays:
    """Drop padded rows. Recurrent batches keep their shape, with zeros in these rows."""
    real = rows["weight"] > 0
    if real.ndim == 1:
        return {name: part[real] for name, part in rows.items()}
    blank = {name: part.shape[:2] == real.shape for name, part in rows.items()}
    return {
        name: np.where(real[(...,) + (None,) * (part.ndim - 2)], part, np.zeros_like(part)) if blank[name] else part
        for name, part in rows.items()
    }


# ------------------------------------------------------------------------------------------------ draws
DEMOS = {"demos": demonstrations()}
FIRST = {"pretraining_updates": 3, "demonstration_priority_epsilon": 1.0}
PRIORITIES = {"prioritized": True, "importance_anneal_samples": 20, "priority_epsilon": 0.1}
DRAWN: dict[str, tuple[Any, Options, Options, Options]] = {  # options of the algorithm, the stream, the buffer
    "uniform": (duetto.TD3, {"n_step": 2, "learning_starts": 9, "train_every": 4, "gradient_steps": 2}, {}, {}),
    "at ends": (duetto.TD3, {"train_at_episode_end": True, "learning_starts": 9}, {}, {}),
    "prioritized": (duetto.TD3, PRIORITIES | {"n_step": 3}, {}, {}),
    "prioritized gaps": (duetto.TD3, PRIORITIES, {"gaps": True}, {}),
    "hindsight": (duetto.TD3, {"hindsight": "future"}, {"kind": "goal"}, {"goals": GOALS}),
    "sequences": (duetto.DQN, SEQUENCE, {}, {}),
    "prioritized sequences": (duetto.DQN, SEQUENCE | PRIORITIES, {}, {}),
    "uniform shards": (duetto.TD3, {"n_step": 2}, {}, {"shards": 2}),
    "prioritized shards": (duetto.TD3, PRIORITIES, {}, {"shards": 2}),
    "demonstrations": (duetto.DQfD, PRIORITIES | {"n_step": 2} | FIRST, {}, DEMOS),
    "demonstrations by priority": (duetto.DQfD, PRIORITIES | {"share_by_priority": True}, {}, DEMOS),
    "demonstrated sequences": (duetto.R2D3, SEQUENCE | PRIORITIES, {}, DEMOS),
}


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("case", DRAWN)
def test_drawn_batches_match_trace(case: str, restored: bool):
    kind, options, about, given = DRAWN[case]
    shared = {"batch_size": 8, "replay_capacity": 60, "discount": 0.9, "train_every": 3, "learning_starts": 0}
    algorithm, discrete = kind(**shared | options), kind is not duetto.TD3
    spaces = streams.SPACES[about.get("kind", "key")], streams.CHOICE if discrete else streams.NUMBERS
    carry = HIDDEN if "recurrent" in options else {}
    buffer, drawn = adapter.Buffer(algorithm, *spaces, **given), []
    for at, step in enumerate(stream(LENGTHS, 31, discrete=discrete, **about, **carry)):
        drawn += map(_drawn, buffer.due(_errors)) if at == 0 else []  # before the first step
        if restored and at == 17:
            state, segment, _ = buffer.save()
            buffer = adapter.Buffer(algorithm, *spaces, seed=9, **given)
            buffer.load(state, [segment])
        buffer.add(step)
        drawn += map(_drawn, buffer.due(_errors))
    priorities = everything(buffer, draws=400, without=()) if options.get("prioritized") else {}
    kept = {f"in the end/{name}": part for name, part in priorities.items() if name in ("obs", "weight", "starts")}
    compare("buffers", f"drawn {case}", series(drawn) | kept, near(1e-6))


def _drawn(rows: Arrays) -> Arrays:
    """Return the keys and weights of a batch."""
    names = [name for name in rows if name.startswith(("obs", "weight", "expert", "starts", "next_obs"))]
    return {name: rows[name] for name in names if "achieved" not in name}


def _errors(rows: Arrays) -> np.ndarray:
    return rows["reward"].astype(np.float64) * 7 % 11 / 5
