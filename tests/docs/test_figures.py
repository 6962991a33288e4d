"""The numbers behind the figures of the documentation, made again."""

from __future__ import annotations

import re
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import bc
import crossq
import ddpg
import discretesac
import dqfd
import dqn
import ends
import frames
import gymnasium
import numpy as np
import overestimation
import ppo
import pytest
import r2d2
import r2d3
import sac
import stale
import staleness
import td3
import twelve

from duetto.buffers import Experience
from duetto.buffers.storage import EpisodeStorage
from duetto.networks.spaces import Discrete

DOCS = Path(__file__).parents[2] / "docs"
USED = sorted(
    {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"_static/figures/(\w+-\w+)\.svg", page.read_text("utf-8"))
    }
)


@pytest.mark.parametrize("name", USED)
def test_a_picture_is_whole_and_says_in_words_what_it_shows(name: str):
    module, function = name.split("-")
    root = ElementTree.fromstring(getattr(import_module(module), function)())
    words = root.find("title")
    assert words is not None
    assert len(words.text or "") > 30
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b|rgb\(", ElementTree.tostring(root, "unicode")), "a colour of its own"
    width = float(root.attrib["viewBox"].split()[2])
    for text in root.iter("text"):
        left, right = reach(text)
        assert left > -2, "".join(text.itertext())
        assert right < width + 2, "".join(text.itertext())


def reach(text: ElementTree.Element) -> tuple[float, float]:
    """Where words start and end, about: letters of the page's fonts are half as wide as high, bold ones more."""
    bold = "strong" in text.attrib["class"]
    letters = len("".join(text.itertext()).replace("\u200b", ""))
    wide = letters * (0.58 if bold else 0.5) * float(text.attrib["font-size"])
    left = float(text.attrib["x"]) - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]] * wide
    return left, left + wide


def test_td3s_example():
    """The arithmetic stands on the page; SPEC O7."""
    found = [td3.NOISE, td3.CLIPPED, td3.SMOOTHED, td3.LOWER, td3.TARGET, *td3.ERRORS, td3.LOSS]
    assert found == pytest.approx([0.7, 0.5, 0.8, 11.2, 12.088, -1.088, -0.588, 1.529488])


def test_a_target_is_half_way_after_139_moves():
    weights = td3.chase(139)
    assert weights[138] < 1.5 < weights[139] == pytest.approx(1.5017948373)


def test_the_picture_of_the_memory():
    """Eleven transitions in a ring of eight: rows 0 to 2 are the newest, the next one takes row 3."""
    storage = EpisodeStorage(Discrete(12), Discrete(2), 1, 8)
    zero, no = np.zeros(1, np.int64), np.zeros(1, bool)
    for n in range(11):
        step = Experience(zero, zero + n, zero, zero.astype(np.float32), zero + n + 1, no, no)
        storage.add(step)
    assert np.asarray(storage.observation(np.arange(8))).tolist() == [8, 9, 10, 3, 4, 5, 6, 7]
    drawn = re.findall(r">(\d+)</text>", td3.memory())
    assert [int(n) for n in drawn[::2]][:8] == [8, 9, 10, 3, 4, 5, 6, 7]
    assert "transition 11 overwrites 3" in td3.memory()


def test_the_pendulum_that_values_are_measured_in_is_gymnasiums():
    env, random = gymnasium.make("Pendulum-v1").unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(50):
        state = np.array(env.state, np.float64)
        action = random.uniform(-1, 1)
        obs, reward, *_ = env.step(np.array([2 * action]))
        moved, paid = overestimation.swing(state[None], np.array([action]))
        np.testing.assert_allclose(moved[0], env.state, atol=1e-6)
        np.testing.assert_allclose(paid[0], reward, atol=1e-6)
        np.testing.assert_allclose(overestimation.observed(moved)[0], obs, atol=1e-5)


def test_measured_returns_are_discounted_sums():
    """Without torque; the sums are made here by powers instead of backwards."""
    measured = overestimation.measured(lambda obs: np.zeros((len(obs), 1)), lambda obs, action: np.full(len(obs), 3.0))
    assert measured[0] == 3.0
    state = np.random.default_rng(0).uniform([-np.pi, -1.0], [np.pi, 1.0], (overestimation.STARTS, 2))
    rewards = []
    for _ in range(overestimation.VISITED + overestimation.BEYOND):
        state, reward = overestimation.swing(state, np.zeros(len(state)))
        rewards.append(reward)
    paid = np.array(rewards)
    truth = [
        (paid[t:] * overestimation.DISCOUNT ** np.arange(len(paid) - t)[:, None]).sum(axis=0)
        for t in range(0, overestimation.VISITED, overestimation.VISITED // 20)
    ]
    assert measured[1] == pytest.approx(np.mean(truth))
    assert measured[2] == pytest.approx(paid[: overestimation.VISITED].sum(axis=0).mean())


def test_what_the_page_says_of_the_measurements():
    """One critic ends above the truth with every seed, two with quick targets below; TD3 has one seed unsettled."""
    curves = import_module("curves")
    assert min(curves.bias("DDPG") + curves.bias("one critic")) > 0
    assert max(curves.bias("targets at every step") + curves.bias("only the actor's target waits")) < 0
    assert curves.solved("TD3").count(None) == 1
    assert curves.solved("no target networks") == [None] * 3
    ends = [rows[-1]["episode_return"] for rows in curves.measurements()["no target networks"].values()]
    assert [round(one, -1) for one in (max(ends), min(ends))] == [-730, -1410]


def test_the_committed_measurements_are_all_there():
    curves = import_module("curves").measurements()
    assert list(curves) == list(overestimation.VARIANTS)
    for seeds in curves.values():
        assert sorted(seeds) == list(range(overestimation.SEEDS))
        for rows in seeds.values():
            steps = [row["step"] for row in rows]
            assert steps == list(range(overestimation.EVERY, overestimation.STEPS + 1, overestimation.EVERY))


def test_only_the_critics_targets_move_at_every_update():
    """The one variant that is no option: three updates, of which the first is the actor's turn."""
    moved: list[str] = []
    learner = SimpleNamespace(
        minimize=lambda name, *rest: moved.append(name), track=lambda target, *rest: moved.append(target)
    )
    waiting = overestimation.algorithm("only the actor's target waits", overestimation.SETTINGS)
    for update in range(3):
        waiting.update(learner, None, None, waiting.phase(update))
    critics = ["critic", "target_critic"]
    actors = ["actor", "target_actor"]
    assert moved == critics + actors + critics + critics + actors


# ---------------------------------------------------------------------------------------------------- Atari
def test_breakouts_frames_are_those_that_an_agent_sees():
    """The same game in Duetto's environment: observations, rewards, lives; and the pictures that are committed."""
    pytest.importorskip("ale_py")
    import imageio.v3 as imageio

    from duetto.environments import make

    options = {"noop_max": 0, "fire_reset": False, "sticky_actions": 0}
    with closing(make("ALE/Breakout-v5", kwargs=options)) as env:
        env.reset(0)
        for number, step in enumerate(frames.play()):
            [seen] = env.step(np.array([step.action]))[0].next_obs
            np.testing.assert_array_equal(seen[-1], step.seen)
            assert frames.game()[number] == {"step": number, "reward": step.reward, "lives": step.lives}
            if number == frames.SHOWN:
                for i, frame in enumerate(step.colour):
                    np.testing.assert_array_equal(imageio.imread(frames.DATA / f"breakout-frame-{i}.png"), frame)
                for i in range(frames.STACK):
                    np.testing.assert_array_equal(imageio.imread(frames.DATA / f"breakout-seen-{i}.png"), seen[i])
                break


def test_clipped_rewards_are_less_than_the_score():
    score, learned, lost = frames.totals()
    assert score[-1] > learned[-1] > 0
    assert len(lost) == 5


# ---------------------------------------------------------------------------------------------------- twelve pictures
def test_the_best_values_are_powers_of_the_discount():
    """.9 to the number of moves before the last one: from the start four, from beside the goal none."""
    best = twelve.best_values()
    assert best[twelve.START] == pytest.approx(0.9**4) == pytest.approx(twelve.discounted(twelve.SHORT))
    assert best[2, 0] == 1.0
    assert twelve.discounted(twelve.LONG) == pytest.approx(0.9**8)


def test_the_random_policys_values_solve_their_equations():
    """V = R + γ P V, solved at once instead of step by step."""
    index = {cell: i for i, cell in enumerate(twelve.CELLS)}
    following, paid = np.zeros((len(index), len(index))), np.zeros(len(index))
    for cell, i in index.items():
        for move in twelve.MOVES:
            reached, reward, over = twelve.step(cell, move)
            paid[i] += reward / 4
            if not over:
                following[i, index[reached]] += 1 / 4
    solved = np.linalg.solve(np.eye(len(index)) - twelve.GAMMA * following, paid)
    found = twelve.random_values()
    np.testing.assert_allclose([found[cell] for cell in twelve.CELLS], solved, atol=1e-9)


def test_a_value_walks_back_one_cell_an_episode():
    assert [sum(value > 0 for value in twelve.walked(n).values()) for n in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 5]
    assert twelve.walked(2)[2, 0] == 0.75
    assert twelve.walked(2)[1, 0] == pytest.approx(0.5 * 0.9 * 0.5)


def test_who_tries_finds_the_best_arm_and_who_does_not_gets_stuck():
    greedy, trying = twelve.bandit(0.0)[-50:].mean(), twelve.bandit(0.1)[-50:].mean()
    assert greedy < 0.65
    assert 0.72 < trying < 0.9 * 0.8 + 0.1 * np.mean(twelve.ARMS) + 0.01


def test_the_families_are_algorithms_of_ours():
    from duetto.algorithms import ALGORITHMS

    assert {name for names in twelve.FAMILIES.values() for name in names} <= set(ALGORITHMS)


# ---------------------------------------------------------------------------------------------------- PPO
def test_two_of_the_six_cases_have_no_gradient():
    """A > 0 below and inside: up; above: none. A < 0 below: none; inside and above: down."""
    assert [round(ppo.slope(*case), 6) for case in ppo.CASES] == [1, 1, 0, 0, -1, -1]
    assert ppo.six_cases().count("no gradient: far enough") == 2


def test_the_clip_keeps_the_policy_near_and_without_it_runs_away():
    assert ppo.rounds(0.0)[-1] > 3
    assert max(ppo.rounds(0.2)) < 0.1
    assert max(ppo.rounds(0.1)) < max(ppo.rounds(0.2))


def test_values_of_the_walk():
    """Each is γ times the mean of its neighbours: behind the left end lies 0, behind the right one 1 that γ spares."""
    values = [0.0, *ppo.walk_values(), 1 / ppo.GAMMA]
    for i in range(1, ppo.STATES + 1):
        assert values[i] == pytest.approx(ppo.GAMMA * (values[i - 1] + values[i + 1]) / 2)


def test_lambda_trades_bias_for_spread():
    """λ = 0 says r + γ · 0.5 always; λ = 1 is the return itself. In between both errors together are least."""
    measured = ppo.trade()
    truth = ppo.GAMMA * ppo.walk_values()[ppo.CENTRE + 1]
    assert measured[0.0] == pytest.approx((ppo.GAMMA * 0.5 - truth, 0), abs=1e-9)
    assert abs(measured[1.0][0]) < 4 * measured[1.0][1] / 4000**0.5
    spreads = [spread for _, spread in measured.values()]
    assert spreads == sorted(spreads)
    both = {trace: off**2 + spread**2 / ppo.SAMPLES for trace, (off, spread) in measured.items()}
    assert min(both, key=lambda trace: both[trace]) not in (0.0, 1.0)


def test_ppos_example():
    """SPEC O5."""
    assert ppo.example(0.0).tolist() == pytest.approx([1.4, 1, 3.75, 4.7])
    assert ppo.example().tolist() == pytest.approx([2.12, 1, 3.75, 4.7])


# ---------------------------------------------------------------------------------------------------- ends of episodes
def test_values_of_the_ring():
    """SPEC O18."""
    assert ends.chain(True, False) == pytest.approx([2.71, 1.9, 1])
    assert ends.chain(False, False) == pytest.approx([10, 10, 10])
    assert ends.chain(True, True) == ends.chain(False, True) == pytest.approx([2.71, 1.9, 1])


# ---------------------------------------------------------------------------------------------------- DDPG
def test_ddpgs_example():
    """SPEC O16."""
    found = [ddpg.TARGET, ddpg.LOSS, ddpg.CRITIC_GRADIENT, ddpg.NEW_WEIGHT, ddpg.NEW_SLOPE]
    assert found == pytest.approx([3.97, 3.8809, -3.94, 1.394, 0.6394])
    targets = [ddpg.TARGET_WEIGHT, ddpg.TARGET_SLOPE]
    assert targets == pytest.approx([1.00197, 0.500697])


def test_drifting_noise_swings_higher_than_independent_noise_five_times_as_strong():
    medians = {words: float(np.median(ddpg.heights(std, words.startswith("ou")))) for std, words in ddpg.NOISES}
    assert medians["none"] == pytest.approx(-1)
    assert medians["gaussian, 0.1"] < -0.95
    assert medians["gaussian, 1"] < medians["ou, 0.2"] - 0.1


# ---------------------------------------------------------------------------------------------------- DQN
def test_dqns_example():
    """SPEC O2 and O15: 1 + 1.8 + 2.43; .729 · 2; 4 - 6.688; Huber's 2.688 - .5."""
    found = [dqn.RETURN, dqn.DISCOUNT, dqn.TARGET, dqn.ERROR, dqn.LOSS]
    assert found == pytest.approx([5.23, 0.729, 6.688, -2.688, 2.188])


def test_a_maximum_promises_too_much_and_double_does_not():
    """Of two standard normal numbers the expected maximum is 1 / √π = .5642."""
    assert dqn.promises(2)[0] == pytest.approx(np.pi**-0.5, abs=0.03)
    assert dqn.promises(18)[0] == pytest.approx(1.82, abs=0.03)
    assert max(abs(dqn.promises(n)[1]) for n in (2, 6, 18)) < 0.03


# ---------------------------------------------------------------------------------------------------- SAC
def test_sacs_example():
    """The arithmetic is in tests/algorithms/test_sac_losses.py."""
    found = [sac.NEXT_LOG_PROB, sac.TARGET, sac.CRITIC_LOSS, sac.ACTOR_LOSS, sac.LOG_PROB, sac.NEW_LOG_ALPHA]
    assert found == pytest.approx([-0.1763769, 2.4248913, 1.7108478, -2.183325, -0.3326269, -0.8264099], rel=1e-5)
    assert "0.25 → 0.2197" in sac.actor_step()


def test_entropy_finds_the_high_hump_and_too_little_of_it_does_not():
    ends_at = {alpha: float(np.tanh(sac.climbed(alpha)[0])) for alpha in (0.0, 0.1, 0.2)}
    assert ends_at == {
        0.0: pytest.approx(-0.5, abs=0.02),
        0.1: pytest.approx(-0.5, abs=0.02),
        0.2: pytest.approx(0.5, abs=0.02),
    }


# ---------------------------------------------------------------------------------------------------- R2D2
def test_r2d2s_example():
    """SPEC O1, O2, O10 and O14."""
    found = [r2d2.BEHIND, r2d2.SUM, r2d2.TARGET, r2d2.PRIORITY]
    assert found == pytest.approx([7.9523491, 11.0272625, 2.4790617, 0.4766666667])
    assert {words: r2d2.toy(first)[-1] for words, first in r2d2.STARTS} == {
        "the true state": 6.75,
        "stored": 6.5,
        "zeros": 6.125,
    }


def test_the_picture_of_the_sequences():
    """SPEC R12."""
    assert r2d2.cuts(13, 8, 4) == [(0, 8), (4, 8), (8, 5)]


def test_what_the_scale_saves():
    """The page says a hundred million, and 29,000."""
    assert r2d2.cost(1e4, False) / r2d2.cost(1.0, False) == pytest.approx(1e8)
    assert r2d2.cost(1e4, True) / r2d2.cost(1.0, True) == pytest.approx(29_000, rel=0.03)


def test_who_recalls_every_cue_is_paid_at_each_question_and_who_sees_only_what_is_shown_is_not():
    env = staleness.Recall()
    for recalls, expected in ((True, 1.0), (False, 0.0)):
        paid, asked = 0.0, 0
        for seed in range(40):
            obs, _ = env.reset(seed=seed)
            cue, over = 0.0, False
            while not over:
                cue = obs[0] or cue
                asked += int(obs[1])
                obs, reward, _, over, _ = env.step(int(cue > 0) if recalls else 1)
                paid += reward
        assert paid / asked == pytest.approx(expected, abs=0.15)


def test_a_network_that_does_not_learn_has_no_stale_states(monkeypatch: pytest.MonkeyPatch):
    """What is measured as the truth is what the run's own network carried, whatever the burn-in; zeros are not."""
    monkeypatch.setattr(staleness, "STEPS", 4 * 130)
    monkeypatch.setattr(staleness, "LOOKED", 0)
    monkeypatch.setattr(staleness, "AGES", (0,))
    monkeypatch.setattr(staleness, "WINDOW", 50)  # fewer of them
    rows, _ = staleness.train(0, learning_starts=10_000)
    assert len(rows) == 2 * len(staleness.BURN_INS)
    for row in rows:
        if row["start"] == "stored":
            assert row["state"] < 1e-3 > row["value"], row
    assert next(row["state"] for row in rows if row["start"] == "zeros") == 1.0


def test_the_committed_measurements_of_states_are_all_there():
    assert set(stale.measurements()) == {
        (age, start, k) for age in staleness.AGES for start in ("stored", "zeros") for k in staleness.BURN_INS
    }
    assert {len(rows) for rows in stale.measurements().values()} == {staleness.SEEDS}


def test_what_the_page_says_of_stored_states():
    oldest = staleness.AGES[-1]
    means = {key: np.mean([row["value"] for row in rows]) for key, rows in stale.measurements().items()}
    for age in staleness.AGES:
        assert 0.33 < min(stale.off(age, "zeros", 0)) <= max(stale.off(age, "zeros", 0)) < 0.61
        for k in staleness.BURN_INS:
            assert means[age, "stored", k] < means[age, "zeros", k]
        assert 0.01 < round(means[age, "stored", 20], 2) + 1e-9 < 0.05
        assert 0.05 <= round(means[age, "zeros", 20], 2) <= 0.08
    assert [means[age, "stored", 0] for age in staleness.AGES] == sorted(
        means[age, "stored", 0] for age in staleness.AGES
    )
    assert 0.055 < min(stale.off(0, "stored", 0)) <= max(stale.off(0, "stored", 0)) < 0.085
    assert 0.135 < min(stale.off(oldest, "stored", 0)) <= max(stale.off(oldest, "stored", 0)) < 0.185
    assert np.mean(stale.off(oldest, "stored", 0, "state")) == pytest.approx(0.6, abs=0.01)
    assert means[oldest, "stored", 10] / means[oldest, "stored", 0] == pytest.approx(0.5, abs=0.05)
    assert means[oldest, "zeros", 10] / means[oldest, "zeros", 0] == pytest.approx(1 / 3, abs=0.05)


# ---------------------------------------------------------------------------------------------------- DQfD and R2D3
def test_dqfds_example():
    """SPEC O4."""
    found = [dqfd.LOSS, dqfd.N_STEP, dqfd.ONE_STEP, dqfd.PRIORITY_OF, dqfd.MARGIN_LOSS]
    assert found == pytest.approx([125.535681, 11.791, 3.7, 13.491, 1.8])


def test_the_margin_makes_the_experts_action_win_everywhere_and_without_it_chance_wins_in_a_third():
    (rarely, promised), (always, less) = dqfd.cloned(0.0), dqfd.cloned(dqfd.MARGIN)
    assert rarely == pytest.approx(2 / 3, abs=0.03)
    assert always == 1.0
    assert promised > 0.8 > 0.3 > less > 0


def test_r2d3s_example():
    """tests/algorithms/test_dqfd.py has it on both frameworks: (1 - y_n)² + (1 - y_1)² + 1.8."""
    loss = (1 - r2d3.N_STEP) ** 2 + (1 - r2d3.ONE_STEP) ** 2 + 1.8
    found = [r2d3.N_STEP, r2d3.ONE_STEP, r2d3.LOSS]
    assert found == pytest.approx([7.850536, 2.937791, loss], abs=1e-5)


def test_how_many_of_a_batch_are_demonstrations():
    """SPEC O13b."""
    for share in r2d3.SHARES:
        counts = [r2d3.probability(count, share) for count in range(65)]
        assert sum(counts) == pytest.approx(1)
        assert sum(count * p for count, p in enumerate(counts)) == pytest.approx(64 * share)
    assert r2d3.probability(16, 1 / 4) == pytest.approx(0.114517, abs=1e-6)
    assert r2d3.probability(0, 1 / 256) == pytest.approx(0.7784196094)


def test_errors_of_stale_states_on_the_page_of_r2d2():
    """Relative errors without burn-in, and with one of 20 steps."""

    def error(age: int, start: str, burn_in: int) -> int:
        return round(100 * float(np.mean(stale.off(age, start, burn_in))))

    assert [error(0, "zeros", 0), error(0, "stored", 0), error(1_600, "stored", 0)] == [55, 7, 17]
    assert [error(0, "zeros", 20), error(0, "stored", 20), error(1_600, "stored", 20)] == [8, 1, 4]


def test_successes_are_those_of_the_report():
    """As benchmarks/results/learning.md has them."""
    report = (DOCS.parent / "benchmarks" / "results" / "learning.md").read_text("utf-8")
    for run in r2d3.RUNS.values():
        line = re.search(rf"^\| {run} \|.*\| ([\d., ]+) \|$", report, re.MULTILINE)
        assert line, run
        assert [float(one) for one in line[1].split(", ")] == pytest.approx(r2d3.succeeded(run)), run


# ---------------------------------------------------------------------------------------------------- cloning
def test_clonings_example():
    """-log softmax([1, 2, 1.5])(0); the gradient is p - 1 for the expert's action, p for the others."""
    assert pytest.approx(1.680270, abs=1e-6) == bc.LOSS
    assert bc.GRADIENT.tolist() == pytest.approx([-0.813676, 0.506480, 0.307196], abs=1e-6)


def test_who_is_beside_the_lane():
    """The page says 51 of 200 steps and 4. Who comes back slips in 2 of 100 at every place."""
    lost, back = (bc.off_the_lane(which) for which in (True, False))
    assert [round(sum(lost[1:])), round(sum(back[1:]))] == [51, 4]
    assert back[1:] == pytest.approx([0.02] * bc.STEPS, abs=1e-3)
    assert lost[1] == pytest.approx(0.02)
    assert lost[2] == pytest.approx(0.98 * 0.02 + 0.02 * 2 / 3)  # one of three random moves goes back


# ---------------------------------------------------------------------------------------------------- CrossQ
def test_crossqs_example():
    """The losses are SAC's. The norm: mean 12 / 4, variance 14 / 4; renormalised it is as by the running statistics."""
    found = [crossq.TARGET, crossq.LOSS, crossq.MEAN, crossq.VARIANCE, *crossq.after_one_batch()]
    assert found == pytest.approx([2.4248913, 1.7108478, 3, 3.5, 0.03, 1.025])
    assert crossq.TOGETHER.tolist() == pytest.approx([-2 / 3.501**0.5, 0, -1 / 3.501**0.5, 3 / 3.501**0.5])
    assert crossq.renormalised(crossq.WARM_UP - 1).tolist() == crossq.TOGETHER.tolist()
    assert crossq.renormalised(crossq.WARM_UP).tolist() == pytest.approx([-0.5, 0.5, 0, 2])
    assert crossq.BY_RUNNING.tolist() == pytest.approx([-0.5, 0.5, 0, 2])


def test_normalised_apart_both_kinds_of_actions_have_mean_0_and_together_they_keep_their_distance():
    done, ahead = crossq.actions()
    both = np.concatenate([done, ahead])
    assert crossq.normalized(done, done).mean() == pytest.approx(crossq.normalized(ahead, ahead).mean(), abs=1e-9)
    assert crossq.normalized(ahead, both).mean() - crossq.normalized(done, both).mean() > 1


# ---------------------------------------------------------------------------------------------------- discrete SAC
def test_discrete_sacs_example():
    """¼ · 10.6931 + ¾ · 8.1438 = 8.7812; 1 + .9 · that. Drawn, the target is 10.6238 or 8.3295: the same on average."""
    found = [discretesac.VALUE, discretesac.TARGET, *discretesac.SAMPLED, discretesac.SPREAD]
    assert found == pytest.approx([8.781168, 8.903051, 10.623832, 8.329457, 0.993494], abs=1e-5)
    assert float((discretesac.PROBABILITY * discretesac.SAMPLED).sum()) == pytest.approx(discretesac.TARGET)
