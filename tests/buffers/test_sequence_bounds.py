import numpy as np
import pytest
from sequence_cases import World, build, items

from duetto.buffers.sequences import cut


def sequences(steps, length, overlap):
    """(start, real length, step at which it is complete) of an episode of so many steps, found step by step."""
    found = []
    for step in range(1, steps + 1):
        complete, start, real = cut(np.array([step]), np.array([step == steps]), length, overlap)
        if complete[0]:
            found.append((int(start[0]), int(real[0]), step))
    return found


R12 = {
    3: [(0, 3)],
    8: [(0, 8)],
    9: [(0, 8), (4, 5)],
    12: [(0, 8), (4, 8)],
    13: [(0, 8), (4, 8), (8, 5)],
    20: [(0, 8), (4, 8), (8, 8), (12, 8)],
}


@pytest.mark.parametrize(("steps", "expected"), R12.items())
def test_r12_starts_and_lengths(steps, expected):
    assert [(start, real) for start, real, _ in sequences(steps, 8, 4)] == expected


@pytest.mark.parametrize(("steps", "count"), [(80, 1), (81, 2), (100, 2), (120, 2), (121, 3), (1000, 24)])
def test_r12_at_the_papers_size(steps, count):
    assert len(sequences(steps, 80, 40)) == count


def columns():
    """The drawings in the docstring of `cut`: (L, overlap) and the drawn lines of each."""
    assert cut.__doc__ is not None
    lines = cut.__doc__.splitlines()
    head = next(number for number, line in enumerate(lines) if line.strip().startswith("L 8, overlap 4"))
    block = lines[head : lines.index("", head)]
    starts = [number for number in range(len(block[0])) if block[0].startswith("L ", number)]
    for start, end in zip(starts, [*starts[1:], 999], strict=True):
        title, *drawing = (line[start:end].rstrip() for line in block)
        length, overlap = (int(word) for word in title.replace("L ", "").split(", overlap "))
        yield length, overlap, "\n".join(drawing).rstrip()


def drawn(length, overlap, totals):
    lines = []
    for total in totals:
        for number, (start, real, _) in enumerate(sequences(total, length, overlap)):
            label = f"T = {total}" if number == 0 else ""
            lines.append(f"{label:<10}" + " " * start + "abc"[number] * real)
    return "\n".join(lines)


def test_the_drawings_are_true():
    found = {(length, overlap): text for length, overlap, text in columns()}
    assert found == {
        (8, 4): drawn(8, 4, [3, 8, 9, 13]),
        (4, 3): drawn(4, 3, [2, 4, 6]),
        (6, 0): drawn(6, 0, [5, 6, 7, 13]),
    }


def test_the_timetable_is_true():
    marks = {step: "abc"[number] for number, (_, _, step) in enumerate(sequences(7, 4, 2))}
    line = "complete      " + "  ".join(marks.get(step, ".") for step in range(1, 8))
    assert cut.__doc__ is not None
    assert line in cut.__doc__


CUTTINGS = [(0, 1, 0), (0, 4, 0), (0, 4, 3), (2, 4, 2), (2, 4, 5), (3, 1, 3), (3, 5, 4), (4, 4, 4)]


def trained(burn_in, unroll, overlap, total, from_start):
    """How often each step of an episode is learned from, and the largest summed reward among such steps; the
    episode's only reward is 1, for its last step.
    """
    world, counts, largest = World(), np.zeros(total + burn_in + unroll, int), 0.0
    replay = world.build(burn_in=burn_in, unroll=unroll, overlap=overlap, n_step=3, learn_from_start=from_start)
    for step in range(total):
        last = step == total - 1
        replay.add(world.step(0, "terminated" if last else "")._replace(reward=np.array([last], np.float32)))
    for (_, start), item in items(replay).items() if len(replay) else ():
        counts[start : start + burn_in + unroll] += item["mask"].astype(int)
        largest = max(largest, (item["reward"] * item["mask"]).max())
    return counts, largest


@pytest.mark.parametrize("from_start", [True, False])
@pytest.mark.parametrize(("burn_in", "unroll", "overlap"), CUTTINGS)
def test_r14_every_step_and_the_last_reward_are_learned_from(burn_in, unroll, overlap, from_start):
    for total in range(1, 3 * (burn_in + unroll) + 1):
        counts, largest = trained(burn_in, unroll, overlap, total, from_start)
        first = 0 if from_start else burn_in
        assert (counts[first:total] >= 1).all(), total
        assert (counts[:first] == 0).all(), total
        assert (counts[total:] == 0).all(), total  # padding
        assert largest == (1.0 if total > first else 0.0), total


def test_the_oldest_disappear_first():
    """L 6, overlap 2, 20 rows. After 31 steps the numbers 11 .. 30 are left. The next step takes number 11, and with it
    the previous action of the sequence that starts at 12.
    """
    world = World()
    replay = world.build(capacity=20)
    held = {}
    for steps in range(1, 33):
        replay.add(world.step(0))
        held[steps] = [first for _, first in sorted(items(replay))] if len(replay) else []
    assert [held[steps] for steps in (5, 6, 9, 10)] == [[], [0], [0], [0, 4]]
    assert [held[steps] for steps in (20, 21, 24)] == [[0, 4, 8, 12], [4, 8, 12], [8, 12, 16]]
    assert [held[steps] for steps in (31, 32)] == [[12, 16, 20, 24], [16, 20, 24]]


def test_due_waits_for_the_first_sequence_and_pays_later():
    """L 6: the first sequence is complete with the sixth step."""
    replay, world = build(learning_starts=2, train_every=2, gradient_steps=3), World()
    due = []
    for _ in range(10):
        replay.add(world.step(0))
        due.append(len(list(replay.due())))
    assert due == [0, 0, 0, 0, 0, 6, 0, 3, 0, 3]


def test_one_environment_alone_is_interrupted():
    world = World(3)
    replay = world.build(burn_in=0, unroll=4, overlap=2)
    world.episode(replay, 5, "", env=0)
    world.episode(replay, 5, "", env=2)
    replay.interrupt(np.array([True, True, False]))
    assert sorted(items(replay)) == [(0, 0), (0, 2), (2, 0)]
