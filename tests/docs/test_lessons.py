"""The numbers of the lessons and of the first pages, made again."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from statistics import median

import cliffwalk
import exploring
import first
import gymnasium
import mountain
import numpy as np
import pytest
import remember
import replaying
import rooms
import shown
import spread
import twenty
from r2d3 import RUNS, succeeded

DOCS = Path(__file__).parents[2] / "docs"


# ---------------------------------------------------------------------------------------------------- exploration
def test_the_car_is_gymnasiums():
    env, random = gymnasium.make("MountainCarContinuous-v0").unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(300):
        state, action = np.array(env.state, np.float64), random.uniform(-1.5, 1.5)
        env.step(np.array([action]))
        np.testing.assert_allclose(mountain.drive(state[None], np.array([action]))[0], env.state, atol=1e-6)


def test_only_drifting_noise_reaches_the_flag():
    reached = {name: float((exploring.furthest(name) >= mountain.TOP).mean()) for name in mountain.NOISES}
    assert reached.pop("ou, 0.3") == pytest.approx(0.6, abs=0.05)
    assert max(reached.values()) == 0


def test_how_long_a_corridor_takes_by_the_coin():
    """The greedy action leads back to the start: each step onwards happens by the coin, with probability ε / 2."""
    random, epsilon, length = np.random.default_rng(0), 0.5, 3
    coins = random.random((20_000, length)) < epsilon / 2
    assert 1 / coins.all(axis=1).mean() == pytest.approx(exploring.expected_episodes(length, epsilon), rel=0.1)


def test_the_softmax_is_best_where_entropy_is_paid():
    """E[r] + αH of 5,000 other policies is lower."""
    others = np.random.default_rng(0).dirichlet(np.ones(3), 5_000)
    for alpha in exploring.ALPHAS:
        scores = [float(p @ exploring.ARMS - alpha * (p * np.log(p)).sum()) for p in (exploring.soft(alpha), *others)]
        assert max(scores) == scores[0]


def test_the_softmax_of_three_machines():
    assert exploring.soft(0.2).round(2).tolist() == [0.06, 0.17, 0.77]


def test_a_bonus_keeps_policies_from_settling_on_a_bad_machine():
    none, some, much = (exploring.climbed(bonus)[-1] for bonus, *_ in exploring.BONUSES)
    assert [round(100 * float((p < 0.1).mean()), 1) for p in (none, some, much)] == [7.4, 1.4, 4.4]
    assert much.mean() < none.mean() < some.mean()


# ---------------------------------------------------------------------------------------------------- replay
def test_a_memory_keeps_what_the_newest_steps_alone_forget():
    forgot, kept = (replaying.swept(memory)[1][-1] for memory in (False, True))
    assert [round(forgot, 3), round(kept, 3)] == [0.234, 0.016]


def test_the_memorys_own_draws_follow_the_law():
    np.testing.assert_allclose(replaying.counted(), replaying.probabilities(0.6), atol=0.01)
    assert replaying.probabilities(1.0)[0] == 4 / 8
    assert replaying.probabilities(0.6)[0] == pytest.approx(0.375, abs=5e-4)


def test_what_a_rarely_paid_step_is_believed_to_be_worth():
    """In closed form, and learned from the memory's own draws."""
    for alpha, beta, expected in ((0.6, 0.0, 0.202), (0.6, 1.0, 0.1), (0.0, 0.0, 0.1)):
        assert replaying.believed(alpha, beta) == pytest.approx(expected, abs=5e-4)
        found = replaying.lucky.__wrapped__(alpha, beta, updates=3_000)
        assert np.mean(found[-1_000:]) == pytest.approx(expected, abs=0.01)


def test_the_committed_walks_are_made_again():
    """The shorter ones; there is a row of each seed of all."""
    walks = replaying.walks()
    assert set(walks) == {(n, kind) for n in cliffwalk.LENGTHS for kind in cliffwalk.KINDS}
    assert {len(seeds) for seeds in walks.values()} == {cliffwalk.SEEDS}
    for length, seeds in ((2, 10), (4, 3)):
        for kind in cliffwalk.KINDS:
            made = [cliffwalk.updates(length, kind, seed) for seed in range(seeds)]
            assert made == walks[length, kind][:seeds]
    assert [median(walks[10, kind]) for kind in cliffwalk.KINDS] == [25_351, 2_735]


def test_the_walks_transitions():
    """Of three right actions in a row there are eight episodes; they make 14 steps, of which one is paid."""
    steps = cliffwalk.transitions(3)
    assert len(steps) == 2**4 - 2
    assert (steps == (2, 0)).all(axis=1).sum() == 1
    np.testing.assert_allclose(cliffwalk.truth(3), [[4 / 9, 0], [2 / 3, 0], [1, 0]])


# ---------------------------------------------------------------------------------------------------- memory
def test_one_picture_has_two_futures():
    falls, rises = remember.futures()
    assert falls[0] == rises[0]
    assert falls[-1] - rises[-1] > 90


def test_what_the_page_says_of_tasks_without_velocities():
    assert min(remember.last("td3-masked-pendulum-jax", 3)) > -250
    assert max(remember.last("td3-masked-pendulum-feedforward", 3)) < -1_000


def test_half_lives():
    for keep, steps in ((0.5, 1.0), (0.9, 6.579), (0.98, 34.31)):
        assert remember.half_life(keep) == pytest.approx(steps, abs=0.01)
        assert keep ** remember.half_life(keep) == pytest.approx(0.5)


# ---------------------------------------------------------------------------------------------------- demonstrations
def test_what_the_page_says_of_demonstrations():
    found = {name: np.mean(succeeded(run)) for name, run in RUNS.items()}
    assert found["share 1/256"] == found["share 0"] == 0
    assert min(found["share 1/16"], found["share 1/64"]) > 0.8
    assert found["the paper's loss alone"] == pytest.approx(0.2)
    assert found["10 demonstrations"] < 0.1 < 0.9 < found["1,000 demonstrations"]


def test_success_of_r2d3_and_batches_without_demonstrations():
    assert [round(100 * rate, 1) for rate in succeeded("keycorridor-r2d3")] == [93.5, 93.5, 88.0]
    assert [round(100 * shown.none_in_a_batch(1 / k), 1) for k in (16, 64, 256)] == [1.6, 36.5, 77.8]


def test_how_many_batches_have_no_demonstration():
    drawn = np.random.default_rng(0).random((20_000, 64)) < 1 / 64
    assert (~drawn.any(axis=1)).mean() == pytest.approx(shown.none_in_a_batch(1 / 64), abs=0.01)


# ---------------------------------------------------------------------------------------------------- seeds
def test_the_committed_seeds_are_all_there():
    for setting in twenty.LAMBDAS:
        for step in range(twenty.EVERY, twenty.STEPS + 1, twenty.EVERY):
            assert len(spread.returns(setting, step)) == twenty.SEEDS


def test_what_the_page_says_of_twenty_seeds():
    assert [round(100 * spread.right(n)) for n in spread.SIZES] == [54, 61, 67, 73, 85]
    low, high = spread.interval(3)
    assert float(spread.interquartile(spread.returns(spread.LESS))) < low < high == 500
    better = [spread.returns(0.98, step).mean() > spread.returns(0.8, step).mean() for step in (4_000, 8_000, 12_000)]
    assert all(better)


def test_the_interquartile_mean_is_the_trimmed_one_of_duetto_plot():
    from scipy.stats import trim_mean

    for seeds in (3, 5, 10, 20):
        values = spread.returns(spread.LESS)[:seeds]
        assert float(spread.interquartile(values)) == pytest.approx(trim_mean(values, 0.25))


def test_pairs_of_td3_and_ddpg():
    assert spread.wins() == 23


def test_ten_seeds_on_halfcheetah():
    ends = [row["mean_return"] for row in spread.last_rows(10)]
    assert [round(np.mean(ends[:3])), round(np.mean(ends))] == [6648, 5828]
    assert [round(min(ends)), round(max(ends))] == [3613, 8435]
    assert [round(one) for one in spread.two_spreads()] == [559, 1467]


def test_means_deviations_and_intervals_of_twenty_seeds():
    settings = [spread.returns(setting) for setting in (0.8, 0.98)]
    assert [round(float(one.mean())) for one in settings] == [371, 414]
    assert [round(float(one.std(ddof=1))) for one in settings] == [137, 118]
    assert round((spread.error(137, 20) ** 2 + spread.error(118, 20) ** 2) ** 0.5) == 40
    assert [round(end) for end in (*spread.interval(3), *spread.interval(20))] == [493, 500, 297, 480]


# ---------------------------------------------------------------------------------------------------- first pages
def test_the_evaluations_of_five_minutes_are_those_that_its_terminal_shows():
    text = (DOCS / "start" / "five-minutes.md").read_text("utf-8")
    lines = re.findall(r"^step +([\d,]+)  evaluation ([\d.]+) ±", text, re.MULTILINE)
    assert [(float(step.replace(",", "")), float(mean)) for step, mean in lines] == [
        (step, pytest.approx(mean, abs=0.05)) for step, mean in first.evaluations()
    ]


def test_every_algorithm_is_at_an_end_of_the_decision_or_is_named_beside_it():
    from duetto.algorithms import ALGORITHMS

    chosen = {name for names in first.CHOICES.values() for name in names}
    assert chosen <= set(ALGORITHMS)
    text = (DOCS / "which.md").read_text("utf-8")
    assert all(f"(algorithms/{name}.md)" in text for name in ALGORITHMS)


def test_what_can_be_installed_is_on_the_page():
    """But for everything at once, and what developers need."""
    _, rows = first.extras()
    known = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    elsewhere = {"docs", "all", "dev"}
    assert {row[0].strip("`") for row in rows} == set(known) - elsewhere


def test_no_room_imports_from_a_higher_one():
    """As import-linter says with more care; this is what the picture of the house says."""
    floors = rooms.floors()
    height = {room: row for row, floor in enumerate(floors) for room in floor}
    for room, others in rooms.imports().items():
        assert all(height[other] > height[room] for other in others), room


def test_eight_environments_side_by_side():
    measured = rooms.speeds("AMD EPYC, Zen 5")
    found = [round(measured[f"ppo-halfcheetah-{n}", "duetto-jax", 1]) for n in (1, 8)]
    assert found == [8622, 17986]
    text = (DOCS / "scale" / "machine.md").read_text("utf-8")
    assert all(f"{one:,}" in text for one in found)
