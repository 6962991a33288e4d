"""The pictures of the page on ends of episodes. Their values are solved for here, not drawn by hand."""

from __future__ import annotations

from drawing import Drawing, Plot

GAMMA = 0.9


def chain(ends: bool, one_flag: bool) -> list[float]:
    """Values of the three states of a ring that pays 1 for each step, whose episodes stop after the third.

    `ends`: the task is over there; otherwise a clock stops it. `one_flag`: the learner cannot tell which it was.
    """
    values = [0.0, 0.0, 0.0]
    for _ in range(1000):
        future = 0.0 if ends or one_flag else values[0]
        values = [1.0 + GAMMA * values[1], 1.0 + GAMMA * values[2], 1.0 + GAMMA * future]
    return values


def timelines() -> str:
    """Two episodes of five steps."""
    d = Drawing(700, 250, "Targets after termination and after truncation")
    for y, name, ink in ((70, "terminated", "ink-target"), (180, "truncated", "ink-critic")):
        d.text(20, y + 5, name, f"{ink} strong", "start")
        for i in range(5):
            x = 150 + 80 * i
            d.dot(x, y, "ink-state", 8)
            d.text(x, y - 18, f"s_{i}" if i < 4 else "s_{end}", "", size=13)
            if i < 4:
                d.arrow([(x + 10, y), (x + 68, y)])
                d.text(x + 40, y + 20, "+1", "ink-reward", size=12)
        if name == "terminated":
            d.line([(492, y - 24), (492, y + 24)], "ink-target thick")
            d.text(505, y - 4, "fell, won, crashed:", "", "start", size=12)
            d.text(505, y + 14, "no further reward", "", "start", size=12)
            d.text(430, y + 46, "target of the last step:  y = r", "ink-target strong", size=13)
        else:
            for i in range(2):
                d.line([(480 + 62 * i, y), (536 + 62 * i, y)], "dashed quiet")
                d.dot(542 + 62 * i, y, "quiet", 6)
            d.line([(490, y - 24), (490, y + 24)], "ink-critic dashed")
            d.text(505, y - 22, "time limit:", "", "start", size=12)
            d.text(498, y + 24, "it would have continued", "faint", "start", size=12)
            d.text(430, y + 54, "target of the last step:  y = r + γ V(s_{end})", "ink-critic strong", size=13)
    return d.svg()


def values() -> str:
    """Truth and what one flag learns, for the truncated chain."""
    d = Drawing(700, 250, "Values of the ring, learned with two flags and with one")
    panels = (
        ("terminated", chain(True, False), chain(True, True)),
        ("truncated", chain(False, False), chain(False, True)),
    )
    for i, (title, truth, learned) in enumerate(panels):
        plot = Plot(d, 60 + 340 * i, 46, 260, 140, (-0.6, 2.6), (0.0, 10.5))
        plot.axes((), (0, 5, 10), "", "")
        d.text(plot.left + 130, 22, title, "strong", size=12.5)
        for state in range(3):
            for value, shift, ink in ((truth[state], -0.17, "ink-reward"), (learned[state], 0.17, "ink-target")):
                x, y = plot.at(state + shift, value)
                d.add("rect", f"box {ink}", x=x - 13, y=y, width=26, height=plot.bottom - y)
                d.text(x, y - 5, f"{value:.3g}", ink, size=11)
            d.text(plot.at(state, 0)[0], plot.bottom + 17, f"state {state}", "faint", size=11.5)
    d.text(230, 236, "two flags, correct", "ink-reward strong", size=12)
    d.text(430, 236, "one flag, “done”", "ink-target strong", size=12)
    return d.svg()
