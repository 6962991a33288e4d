"""Figure and numbers of demonstrations."""

from __future__ import annotations

from drawing import Drawing


def kinds() -> str:
    """Three ways to use an expert's episodes."""
    d = Drawing(760, 230, "Three ways to use demonstrations: BC, DQfD and R2D3")
    d.box(90, 115, 130, 56, "demonstrations", "ink-reward", more="episodes")
    rows = (
        (40, "imitate the expert", "BC: supervised learning", "ink-reward"),
        (115, "learn values from its steps", "DQfD: with a margin loss", "ink-critic"),
        (190, "mix them into each batch", "R2D3: a share ρ of each batch", "ink-noise"),
    )
    for y, words, more, ink in rows:
        d.arrow([(158, 115), (250, y)], ink)
        d.box(500, y, 490, 56, words, ink, more=more)
    return d.svg()


def none_in_a_batch(share: float, size: int = 64) -> float:
    """Return the probability that a batch contains no demonstration."""
    return (1 - share) ** size
