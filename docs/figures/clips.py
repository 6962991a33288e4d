"""Animated drawings of trained agents, as SVG with CSS. They do not move if a reader prefers reduced motion.

python docs/figures/clips.py        # trains TD3 on Pendulum-v1 and PPO on CartPole-v1, two minutes; writes data/
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from drawing import Drawing
from overestimation import observed, swing

DATA = Path(__file__).parent / "data"
STEPS, SHOWN, START = 15_000, 160, (np.pi, 0.0)  # steps of training, steps of the clip, hanging at rest
SECONDS = SHOWN * 0.05
CART_STEPS, BALANCED = 50_000, 250


def swung(agent: Any) -> list[float]:
    """The angle, in degrees to the left of upright, at each step of a policy that starts at rest, hanging."""
    state, angles = np.array([START]), []
    for _ in range(SHOWN):
        angles.append(round(float(np.degrees(state[0, 0])), 1))
        state, _ = swing(state, agent.act(observed(state)[0]) / 2.0)
    return angles


def pendulum() -> str:
    """Both rods, each turning by its own keyframes."""
    rows = recorded("pendulum-clip")
    d = Drawing(
        380, 190, "A pendulum swung by the untrained agent hangs; swung by the trained one it rises and stays upright"
    )
    for x, name, words in ((95, "before", "before learning"), (285, "after", f"after {STEPS:,} steps")):
        angles = [float(row[name]) for row in rows]
        frames = "".join(
            f"{100 * i / (len(angles) - 1):.1f}%{{transform:rotate({-angles[i]:.1f}deg)}}"
            for i in [*range(0, len(angles) - 1, 2), len(angles) - 1]
        )
        turned = f"transform-origin:{x}px 88px;transform:rotate({-angles[-1]:.1f}deg)"
        style = f"{turned};animation:{name} {SECONDS:g}s linear infinite"
        d.add("circle", "line axis", cx=x, cy=88, r=70)
        d.open_group("moving", style, f"@keyframes {name}{{{frames}}}")
        d.add("rect", "box ink-actor rod", x=x - 7, y=24, width=14, height=70, rx=7)
        d.close_group()
        d.dot(x, 88, radius=4)
        d.text(x, 182, words, "faint", size=12)
    return d.svg()


def balanced(agent: Any) -> list[tuple[float, float]]:
    """Place of the cart and angle of the pole, in degrees to the right, at each step of one episode; then they stay."""
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=3)
    seen, over = [], False
    for _ in range(BALANCED):
        seen.append((round(float(obs[0]), 3), round(float(np.degrees(obs[2])), 1)))
        if not over:
            obs, _, terminated, truncated, _ = env.step(agent.act(obs))
            over = terminated or truncated
    return seen


def cartpole() -> str:
    """Both carts; where an episode ends early, the pole stays as it was."""
    rows = recorded("cartpole-clip")
    d = Drawing(440, 150, "A pole on a cart falls with the untrained agent, and stays upright with the trained one")
    for x, name, words in ((108, "before", "before learning"), (332, "after", f"after {CART_STEPS:,} steps")):
        states = [(35 * float(row[f"{name}_x"]), float(row[f"{name}_angle"])) for row in rows]
        kept = [*range(0, len(states) - 1, 2), len(states) - 1]
        share = [f"{100 * i / (len(states) - 1):.1f}%" for i in kept]
        moves = "".join(
            f"{at}{{transform:translateX({states[i][0]:.1f}px)}}" for at, i in zip(share, kept, strict=True)
        )
        turns = "".join(f"{at}{{transform:rotate({states[i][1]:.1f}deg)}}" for at, i in zip(share, kept, strict=True))
        time = f"{BALANCED * 0.02:g}s linear infinite"
        d.line([(x - 105, 112), (x + 105, 112)], "axis")
        d.open_group("moving", f"animation:cart-{name} {time}", f"@keyframes cart-{name}{{{moves}}}")
        d.box(x, 102, 44, 20, "", "ink-state")
        d.open_group(
            "moving", f"transform-origin:{x}px 98px;animation:pole-{name} {time}", f"@keyframes pole-{name}{{{turns}}}"
        )
        d.add("rect", "box ink-actor", x=x - 5, y=28, width=10, height=74, rx=5)
        d.close_group()
        d.close_group()
        d.text(x, 140, words, "faint", size=12)
    return d.svg()


def recorded(name: str) -> list[dict[str, str]]:
    """The rows of a clip."""
    with (DATA / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def before_and_after(algorithm: Any, environment: str, steps: int, watch: Any, **options: Any) -> tuple[Any, Any]:
    """What `watch` makes of the agent after one vector step, and of the trained one."""
    import duetto

    with tempfile.TemporaryDirectory() as folder:
        run = duetto.train(
            algorithm,
            environment,
            steps=steps,
            backend="torch",
            threads=1,
            evaluate_every=steps,
            checkpoint_every=0,
            runs_dir=folder,
            callbacks=[lambda trainer: trainer.checkpoint() if trainer.stepper.steps == 1 else None],
            **options,
        )
        return watch(run.agent(options.get("num_envs", 1))), watch(run.agent())


def chosen(kind: Any, preset: str) -> tuple[Any, dict[str, Any]]:
    """The algorithm as the preset has it, and the number of environments."""
    from duetto.presets import presets

    found = presets(kind.name())[preset]
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in found.algorithm.items()}
    return kind(**options), {name: found.run[name] for name in ("num_envs",) if name in found.run}


def write(name: str, columns: list[str], rows: Any) -> None:
    """A clip's data."""
    with (DATA / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])


if __name__ == "__main__":
    import duetto

    algorithm, options = chosen(duetto.PPO, "classic")
    before, after = before_and_after(algorithm, "CartPole-v1", CART_STEPS, balanced, **options)
    columns = ["before_x", "before_angle", "after_x", "after_angle"]
    write("cartpole-clip", columns, ([*one, *other] for one, other in zip(before, after, strict=True)))
    algorithm, options = chosen(duetto.TD3, "Pendulum-v1")
    swings = before_and_after(algorithm, "Pendulum-v1", STEPS, swung, **options)
    write("pendulum-clip", ["before", "after"], zip(*swings, strict=True))
