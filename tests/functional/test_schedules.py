import pytest

from duetto.functional.schedules import decay_factor, kl_adaptive


# cosine: .1 + .9 · (1 + cos(π/4)) / 2 = .1 + .9 · .8535533906
@pytest.mark.parametrize(
    ("kind", "progress", "factor"),
    [
        ("constant", 0.7, 1.0),
        ("linear", 0.25, 0.775),
        ("linear", 1.0, 0.1),
        ("cosine", 0.25, 0.8681980515),
        ("cosine", 1.0, 0.1),
        ("linear", 1.5, 0.1),
        ("linear", -0.5, 1.0),
    ],
)
def test_learning_rate_decay_factor(kind, progress, factor):
    assert decay_factor(kind, progress, 0.1) == pytest.approx(factor, rel=1e-9)


# SPEC O13: above .016 the rate is divided by 1.5, below .004 multiplied by 1.5, else unchanged; it stays in its bounds.
@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [
        (1e-3, 0.02, 6.6666667e-4),
        (1e-3, 0.003, 1.5e-3),
        (1e-3, 0.01, 1e-3),
        (9e-3, 0.003, 1e-2),
        (1.2e-6, 0.02, 1e-6),
    ],
)
def test_kl_adaptive_learning_rate_o13(rate, kl, expected):
    assert kl_adaptive(rate, kl, 0.008) == pytest.approx(expected, rel=1e-7)
