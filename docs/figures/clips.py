"""Moving pictures of our own agents, as SVG with CSS: no video file, and they stand still where a reader wants that.

python docs/figures/clips.py        # trains TD3 on Pendulum-v1, about a minute; writes data/pendulum-clip.csv
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from drawing import Drawing
from overestimation import observed, swing

DATA = Path(__file__).parent / "data" / "pendulum-clip.csv"
STEPS, SHOWN, START = 15_000, 160, (np.pi, 0.0)  # steps of training, steps of the clip, hanging at rest
SECONDS = SHOWN * 0.05


def swung(agent: Any) -> list[float]:
    """The angle, in degrees to the left of upright, at each step of a policy that starts at rest, hanging."""
    state, angles = np.array([START]), []
    for _ in range(SHOWN):
        angles.append(round(float(np.degrees(state[0, 0])), 1))
        state, _ = swing(state, agent.act(observed(state)[0]) / 2.0)
    return angles


def pendulum() -> str:
    """Both rods, each turning by its own keyframes."""
    with DATA.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    d = Drawing(
        560, 190, "A pendulum swung by the untrained agent hangs; swung by the trained one it rises and stays upright"
    )
    for x, name, words in ((150, "before", "before learning"), (410, "after", f"after {STEPS:,} steps")):
        angles = [float(row[name]) for row in rows]
        frames = "".join(
            f"{100 * i / (len(angles) - 1):.1f}%{{transform:rotate({-angles[i]:.1f}deg)}}"
            for i in [*range(0, len(angles) - 1, 2), len(angles) - 1]
        )
        turned = f"transform-origin:{x}px 88px;transform:rotate({-angles[-1]:.1f}deg)"
        style = f"{turned};animation:{name} {SECONDS:g}s linear infinite"
        d.add("circle", "line axis", cx=x, cy=88, r=70)
        d.begin("moving", style, f"@keyframes {name}{{{frames}}}")
        d.add("rect", "box ink-actor rod", x=x - 7, y=24, width=14, height=70, rx=7)
        d.end()
        d.dot(x, 88, radius=4)
        d.text(x, 182, words, "faint", size=12)
    return d.svg()


if __name__ == "__main__":
    import duetto

    with tempfile.TemporaryDirectory() as folder:
        run = duetto.train(
            duetto.TD3(
                hidden=(64, 64),
                batch_size=128,
                discount=0.98,
                replay_capacity=20_000,
                random_steps=1_000,
                learning_starts=1_000,
            ),
            "Pendulum-v1",
            steps=STEPS,
            backend="torch",
            threads=1,
            evaluate_every=STEPS,
            checkpoint_every=0,
            runs_dir=folder,
            callbacks=[lambda session: session.checkpoint() if session.step == 1 else None],
        )
        before, after = swung(run.agent(1)), swung(run.agent())
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["before", "after"])
        writer.writerows(zip(before, after, strict=True))
