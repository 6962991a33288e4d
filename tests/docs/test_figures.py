"""The figures of the documentation, and the numbers behind them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import bc
import crossq
import ddpg
import discretesac
import dqfd
import dqn
import ends
import numpy as np
import ppo
import pytest
import r2d2
import r2d3
import sac
import td3

from duetto.buffers import Experience
from duetto.buffers.episode_storage import EpisodeStorage
from duetto.networks.spaces import Discrete

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = sorted(
    {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"_static/figures/(\w+-\w+)\.svg", page.read_text("utf-8"))
    }
)


@pytest.mark.parametrize("name", FIGURES)
def test_figure_has_a_title_and_fits_its_frame(name: str):
    module, function = name.split("-")
    root = ElementTree.fromstring(getattr(import_module(module), function)())
    words = root.find("title")
    assert words is not None
    assert len(words.text or "") > 30
    assert not re.search(r"#[0-9a-fA-F]{3,6}\b|rgb\(", ElementTree.tostring(root, "unicode")), (
        "uses a fixed color instead of a CSS class"
    )
    width = float(root.attrib["viewBox"].split()[2])
    for text in root.iter("text"):
        left, right = text_extent(text)
        assert left > -2, "".join(text.itertext())
        assert right < width + 2, "".join(text.itertext())


def text_extent(text: ElementTree.Element) -> tuple[float, float]:
    """Estimate where a text starts and ends. Letters are about half as wide as high, bold ones wider."""
    bold = "strong" in text.attrib["class"]
    letters = len("".join(text.itertext()).replace("\u200b", ""))
    wide = letters * (0.58 if bold else 0.5) * float(text.attrib["font-size"])
    left = float(text.attrib["x"]) - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]] * wide
    return left, left + wide


EXAMPLES: dict[str, tuple[list[float], list[float]]] = {
    "bc": (  # -log softmax([1, 2, 1.5])(0); the gradient is p - 1 for the expert's action, p for the others
        [bc.LOSS, *bc.GRADIENT],
        [1.680270, -0.813676, 0.506480, 0.307196],
    ),
    "crossq": (  # the losses are SAC's; the norm's mean is 12 / 4, its variance 14 / 4
        [crossq.TARGET, crossq.LOSS, crossq.MEAN, crossq.VARIANCE, *crossq.after_one_batch(), *crossq.BY_RUNNING],
        [2.4248913, 1.7108478, 3, 3.5, 0.03, 1.025, -0.5, 0.5, 0, 2],
    ),
    "ddpg": (  # SPEC O16
        [ddpg.TARGET, ddpg.LOSS, ddpg.CRITIC_GRADIENT, ddpg.NEW_WEIGHT, ddpg.NEW_SLOPE, ddpg.TARGET_SLOPE],
        [3.97, 3.8809, -3.94, 1.394, 0.6394, 0.500697],
    ),
    "discretesac": (  # 1/4 · 10.6931 + 3/4 · 8.1438 = 8.7812; 1 + .9 · 8.7812
        [discretesac.VALUE, discretesac.TARGET, *discretesac.SAMPLED, discretesac.SPREAD],
        [8.781168, 8.903051, 10.623832, 8.329457, 0.993494],
    ),
    "dqfd": (  # SPEC O4
        [dqfd.LOSS, dqfd.N_STEP, dqfd.ONE_STEP, dqfd.PRIORITY_OF, dqfd.MARGIN_LOSS],
        [125.535681, 11.791, 3.7, 13.491, 1.8],
    ),
    "dqn": (  # SPEC O2 and O15: 1 + 1.8 + 2.43; .729 · 2; 4 - 6.688; Huber's 2.688 - .5
        [dqn.RETURN, dqn.DISCOUNT, dqn.TARGET, dqn.ERROR, dqn.LOSS],
        [5.23, 0.729, 6.688, -2.688, 2.188],
    ),
    "ppo": ([*ppo.example(0.0), *ppo.example()], [1.4, 1, 3.75, 4.7, 2.12, 1, 3.75, 4.7]),  # SPEC O5
    "r2d2": (  # SPEC O1, O2, O10 and O14
        [r2d2.BEHIND, r2d2.SUM, r2d2.TARGET, r2d2.PRIORITY],
        [7.9523491, 11.0272625, 2.4790617, 0.4766666667],
    ),
    "r2d3": (  # (1 - y_n)² + (1 - y_1)² + 1.8
        [r2d3.N_STEP, r2d3.ONE_STEP, r2d3.LOSS],
        [7.850536, 2.937791, (1 - 7.850536) ** 2 + (1 - 2.937791) ** 2 + 1.8],
    ),
    "sac": (  # tests/algorithms/test_sac_losses.py has the arithmetic
        [sac.NEXT_LOG_PROB, sac.TARGET, sac.CRITIC_LOSS, sac.ACTOR_LOSS, sac.LOG_PROB, sac.NEW_LOG_ALPHA],
        [-0.1763769, 2.4248913, 1.7108478, -2.183325, -0.3326269, -0.8264099],
    ),
    "td3": (  # SPEC O7
        [td3.NOISE, td3.CLIPPED, td3.SMOOTHED, td3.LOWER, td3.TARGET, *td3.ERRORS, td3.LOSS],
        [0.7, 0.5, 0.8, 11.2, 12.088, -1.088, -0.588, 1.529488],
    ),
    "ends": ([*ends.chain(True, False), *ends.chain(False, False)], [2.71, 1.9, 1, 10, 10, 10]),  # SPEC O18
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_worked_example_has_the_numbers_of_the_specification(page: str):
    computed, by_hand = EXAMPLES[page]
    assert computed == pytest.approx(by_hand, rel=1e-5)


def test_replay_buffer_figure_shows_the_ring_buffer():
    """Eleven transitions in a ring of eight: rows 0 to 2 have the newest, and row 3 is overwritten next."""
    storage = EpisodeStorage(Discrete(12), Discrete(2), 1, 8)
    zero, no = np.zeros(1, np.int64), np.zeros(1, bool)
    for n in range(11):
        step = Experience(zero, zero + n, zero, zero.astype(np.float32), zero + n + 1, no, no)
        storage.add(step)
    assert np.asarray(storage.observation(np.arange(8))).tolist() == [8, 9, 10, 3, 4, 5, 6, 7]
    drawn = re.findall(r">(\d+)</text>", td3.memory())
    assert [int(n) for n in drawn[::2]][:8] == [8, 9, 10, 3, 4, 5, 6, 7]
    assert "transition 11 overwrites 3" in td3.memory()


# ---------------------------------------------------------------------------------------------------- R2D3
def test_r2d3_success_rates_equal_the_learning_report():
    """Compare with benchmarks/results/learning.md."""
    report = (DOCS.parent / "benchmarks" / "results" / "learning.md").read_text("utf-8")
    for run in r2d3.RUNS.values():
        line = re.search(rf"^\| {run} \|.*\| ([\d., ]+) \|$", report, re.MULTILINE)
        assert line, run
        assert [float(one) for one in line[1].split(", ")] == pytest.approx(r2d3.succeeded(run)), run
