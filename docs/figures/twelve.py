"""The pictures of "RL in twelve pictures": one small world, solved and learned here.

. . . G        4 x 3 cells, one of them a wall; G pays 1, P costs 1, and both end the episode; S is the start
. # . P
S . . .
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from drawing import Drawing, Plot

WIDTH, HEIGHT = 340, 210
GAMMA = 0.9
COLUMNS, ROWS = 4, 3
WALL, GOAL, PIT, START = (1, 1), (3, 0), (3, 1), (0, 2)
MOVES = {"up": (0, -1), "right": (1, 0), "down": (0, 1), "left": (-1, 0)}

Cell = tuple[int, int]
CELLS: list[Cell] = [(x, y) for y in range(ROWS) for x in range(COLUMNS) if (x, y) not in (WALL, GOAL, PIT)]
SHORT: list[Cell] = [(0, 2), (0, 1), (0, 0), (1, 0), (2, 0), GOAL]
LONG: list[Cell] = [(0, 2), (1, 2), (2, 2), (3, 2), (2, 2), (2, 1), (2, 0), (1, 0), (2, 0), GOAL]


def step(cell: Cell, move: str) -> tuple[Cell, float, bool]:
    """The next cell, the reward, and whether the task is over."""
    x, y = cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
    reached = (x, y) if 0 <= x < COLUMNS and 0 <= y < ROWS and (x, y) != WALL else cell
    return reached, {GOAL: 1.0, PIT: -1.0}.get(reached, 0.0), reached in (GOAL, PIT)


def action_value(values: dict[Cell, float], cell: Cell, move: str) -> float:
    """r + γ V(s')."""
    reached, reward, over = step(cell, move)
    return reward + (0.0 if over else GAMMA * values[reached])


def best_values() -> dict[Cell, float]:
    """Of the best policy, by value iteration."""
    values = dict.fromkeys(CELLS, 0.0)
    for _ in range(100):
        values = {cell: max(action_value(values, cell, move) for move in MOVES) for cell in CELLS}
    return values


def random_values() -> dict[Cell, float]:
    """Of the policy that takes each move with probability ¼."""
    values = dict.fromkeys(CELLS, 0.0)
    for _ in range(1000):
        values = {cell: sum(action_value(values, cell, move) for move in MOVES) / 4 for cell in CELLS}
    return values


def discounted(path: list[Cell]) -> float:
    """The return of a path that ends in the goal."""
    return GAMMA ** (len(path) - 2)


def walked(episodes: int, rate: float = 0.5) -> dict[Cell, float]:
    """Values after some episodes along the short path, each step's value moved by `rate` towards r + γ V(s')."""
    values = dict.fromkeys(CELLS, 0.0)
    for _ in range(episodes):
        for cell, reached in pairwise(SHORT):
            target = 1.0 if reached == GOAL else GAMMA * values[reached]
            values[cell] += rate * (target - values[cell])
    return values


ARMS = (0.3, 0.5, 0.8)  # how often each of three slot machines pays 1


def bandit(epsilon: float, pulls: int = 200, players: int = 2000) -> np.ndarray:
    """Mean reward of each pull, (pulls,), over players who take the best arm so far, or with ε any."""
    random = np.random.default_rng(0)
    total, count, seen = np.zeros((players, 3)), np.zeros((players, 3)), []
    rows = np.arange(players)
    for _ in range(pulls):
        guess = np.divide(total, count, out=np.full((players, 3), 0.0), where=count > 0)
        arm = (guess + 1e-9 * random.random(guess.shape)).argmax(axis=1)
        arm = np.where(random.random(players) < epsilon, random.integers(3, size=players), arm)
        paid = random.random(players) < np.array(ARMS)[arm]
        total[rows, arm] += paid
        count[rows, arm] += 1
        seen.append(paid.mean())
    return np.array(seen)


# ---------------------------------------------------------------------------------------------------- the world drawn
def _world(
    d: Drawing, left: float, top: float, size: float, inside: Callable[[Cell, float, float], None] | None = None
) -> Callable[[Cell], tuple[float, float]]:
    """The cells, and a function that says where a cell's middle is."""

    def middle(cell: Cell) -> tuple[float, float]:
        return left + size * (cell[0] + 0.5), top + size * (cell[1] + 0.5)

    for y in range(ROWS):
        for x in range(COLUMNS):
            here = middle((x, y))
            ink = {WALL: "quiet wall", GOAL: "ink-reward", PIT: "ink-target"}.get((x, y), "quiet cell")
            d.add("rect", f"box {ink}", x=here[0] - size / 2, y=here[1] - size / 2, width=size, height=size, rx=3)
            if (x, y) in (GOAL, PIT):
                d.text(here[0], here[1] + 5, "+1" if (x, y) == GOAL else "−1", f"{ink} strong", size=size / 3.2)
            elif (x, y) != WALL and inside:
                inside((x, y), *here)
    return middle


def _numbers(d: Drawing, values: dict[Cell, float], size: float) -> Callable[[Cell, float, float], None]:
    """Writes a cell's value; the higher, the darker the cell."""

    def write(cell: Cell, x: float, y: float) -> None:
        value = values[cell]
        if value > 0.004:
            shade = 0.08 + 0.32 * value
            d.add("rect", "fill ink-critic", x=x - size / 2, y=y - size / 2, width=size, height=size, opacity=shade)
        if value:
            d.text(x, y + 4, f"{value:.2f}".replace("-", "−"), size=11)

    return write


def loop() -> str:
    """1."""
    d = Drawing(WIDTH, HEIGHT, "The loop of agent and environment")
    d.box(170, 50, 130, 50, "agent", "ink-actor", more="decides")
    d.box(170, 160, 130, 50, "environment", "ink-state", more="answers")
    d.arrow([(236, 50), (290, 50), (290, 160), (240, 160)], "ink-actor")
    d.text(298, 110, "action", "ink-actor", "start", size=12.5)
    d.arrow([(104, 150), (44, 150), (44, 42), (100, 42)], "ink-state")
    d.arrow([(104, 168), (24, 168), (24, 60), (100, 60)], "ink-reward")
    d.text(52, 100, "observation", "ink-state", "start", size=12.5)
    d.text(52, 120, "reward", "ink-reward", "start", size=12.5)
    return d.svg()


def world() -> str:
    """2."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        "World of four by three cells with goal and pit",
    )
    middle = _world(d, 50, 20, 58)
    x, y = middle(START)
    d.dot(x, y, "ink-actor", 12)
    for dx, dy in MOVES.values():
        d.arrow([(x + 15 * dx, y + 15 * dy), (x + 30 * dx, y + 30 * dy)], "ink-actor")
    return d.svg()


def episode() -> str:
    """3."""
    d = Drawing(WIDTH, HEIGHT, "An episode of five steps to the goal")
    middle = _world(d, 50, 6, 52)
    points = [middle(cell) for cell in SHORT]
    for (x, y), (x_next, y_next) in pairwise(points):
        dx, dy = np.sign(x_next - x), np.sign(y_next - y)
        line = [(x + 9 * dx, y + 9 * dy), (x_next - 9 * dx, y_next - 9 * dy)]
        if (x_next, y_next) == points[-1]:
            d.arrow([line[0], (x_next - 18, y_next)], "ink-actor")
        else:
            d.line(line, "ink-actor")
    for i, (x, y) in enumerate(points[:-1]):
        d.add("circle", "box ink-actor", cx=x, cy=y, r=9)
        d.text(x, y + 4, str(i), "ink-actor", size=11)
    d.text(WIDTH / 2, 190, "rewards 0, 0, 0, 0, 1; return 1", "ink-reward strong", size=13)
    return d.svg()


def discount() -> str:
    """4."""
    d = Drawing(WIDTH, HEIGHT, "Discounted rewards: 1, 0.9, 0.81 and so on")
    plot = Plot(d, 40, 22, 280, 110, (-0.6, 9.6), (0.0, 1.05))
    plot.axes((0, 2, 4, 6, 8), (0, 1), "", "a reward of 1, by steps of delay")
    for t in range(10):
        x, y = plot.at(t, GAMMA**t)
        ink = "ink-reward" if t in (len(SHORT) - 2, len(LONG) - 2) else "quiet"
        d.add("rect", f"box {ink}", x=x - 9, y=y, width=18, height=plot.bottom - y)
    for path, words, y in ((SHORT, "five steps", 172), (LONG, "nine steps", 194)):
        d.text(40, y, f"{words}: 0.9^{len(path) - 2}", "", "start", size=13)
        d.text(200, y, f"= {discounted(path):.4f}", "ink-reward strong", "start", size=13)
    return d.svg()


def policy() -> str:
    """5."""
    d = Drawing(WIDTH, HEIGHT, "A random policy and the best policy")
    best = best_values()
    for left, every in ((4, True), (176, False)):

        def draw(cell: Cell, x: float, y: float, every: bool = every) -> None:
            values = {move: action_value(best, cell, move) for move in MOVES}
            for move, (dx, dy) in MOVES.items():
                if every:
                    d.arrow([(x + 3 * dx, y + 3 * dy), (x + 16 * dx, y + 16 * dy)], "ink-actor thin")
                elif values[move] > max(values.values()) - 1e-9:
                    d.arrow([(x - 11 * dx, y - 11 * dy), (x + 13 * dx, y + 13 * dy)], "ink-actor")

        _world(d, left, 34, 40, draw)
    d.text(84, 20, "random", "", size=12.5)
    d.text(256, 20, "best", "", size=12.5)
    d.text(WIDTH / 2, 184, "two arrows: equally good", "faint", size=11.5)
    return d.svg()


def state_values() -> str:
    """6."""
    d = Drawing(WIDTH, HEIGHT, "State values of the random and the best policy")
    for left, values in ((4, random_values()), (176, best_values())):
        _world(d, left, 34, 40, _numbers(d, values, 40))
    d.text(84, 20, "random", "", size=12.5)
    d.text(256, 20, "best", "", size=12.5)
    d.text(WIDTH / 2, 184, "expected return from each cell", "faint", size=11.5)
    return d.svg()


def action_values() -> str:
    """7: action values next to the pit."""
    d = Drawing(WIDTH, HEIGHT, "Values of the four actions in one cell")
    cell, best = (2, 1), best_values()
    _world(d, 8, 50, 32, lambda c, x, y: d.dot(x, y, "ink-actor", 6) if c == cell else None)
    x, y, size = 240, 100, 150
    d.add("rect", "box quiet cell", x=x - size / 2, y=y - size / 2, width=size, height=size, rx=4)
    values = {move: action_value(best, cell, move) for move in MOVES}
    for move, (dx, dy) in MOVES.items():
        chosen = values[move] == max(values.values())
        ink = "ink-actor" if chosen else "quiet"
        d.arrow([(x + 8 * dx, y + 8 * dy), (x + 26 * dx, y + 26 * dy)], ink)
        text = f"{values[move]:.2f}".replace("-", "−")
        d.text(x + 51 * dx, y + 5 + 46 * dy, text, "ink-critic strong" if chosen else "ink-critic", size=13)
    d.text(240, 198, "up is best: 0.9", "ink-actor", size=12)
    return d.svg()


def bellman() -> str:
    """8."""
    d = Drawing(WIDTH, HEIGHT, "Values computed from the next values")
    best, path = best_values(), SHORT[1:]
    for i, cell in enumerate(path):
        x = 40 + 65 * i
        goal = cell == GOAL
        d.box(x, 70, 50, 46, "goal" if goal else f"{best[cell]:.3g}", "ink-reward" if goal else "ink-critic")
        if i:
            d.arrow([(x - 5, 96), (x - 5, 116), (x - 59, 116), (x - 59, 98)], "ink-critic")
            d.text(x - 32, 134, "1 + 0" if goal else "0 + γ V", "ink-reward" if goal else "ink-critic", size=11.5)
    d.text(WIDTH / 2, 28, "values, from the end backwards", "", size=12.5)
    d.text(WIDTH / 2, 170, "0.9 · 1 = 0.9,  0.9 · 0.9 = 0.81,  0.9 · 0.81 = 0.729", "faint", size=11.5)
    return d.svg()


def learning() -> str:
    """9: the values after one, two, four and eight episodes."""
    d = Drawing(WIDTH, 272, "Values after 1, 2, 4 and 8 episodes")
    for i, episodes in enumerate((1, 2, 4, 8)):
        left, top = 8 + 176 * (i % 2), 24 + 134 * (i // 2)
        d.text(left + 72, top - 7, f"after {episodes} episode{'s' * (episodes > 1)}", "faint", size=11.5)
        _world(d, left, top, 36, _numbers(d, walked(episodes), 36))
    return d.svg()


def exploring() -> str:
    """10."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        "Average pay of greedy and of exploring players",
    )
    plot = Plot(d, 44, 26, 216, 130, (0, 200), (0.3, 0.85))
    plot.axes((0, 100, 200), (0.4, 0.6, 0.8), "pulls", "mean reward")
    plot.curve([(0, 0.8), (200, 0.8)], "quiet dashed")
    for epsilon, words, ink in ((0.0, "greedy", "ink-target"), (0.1, "ε = 0.1", "ink-critic")):
        found = bandit(epsilon)
        smooth = np.convolve(found, np.ones(10) / 10, "valid")
        points = [(i + 5.0, float(value)) for i, value in enumerate(smooth)]
        plot.curve(points[::4], ink)
        d.text(plot.right + 5, plot.at(0, points[-1][1])[1] + 4, words, ink, "start", size=11.5)
    d.text(plot.right + 5, plot.at(0, 0.8)[1] - 7, "best machine", "faint", "start", size=11)
    return d.svg()


def network() -> str:
    """11."""
    d = Drawing(
        WIDTH,
        HEIGHT,
        "A table of values and a neural network",
    )
    for i in range(6):
        d.box(38, 30 + 24 * i, 52, 20, "", "quiet cell")
        d.box(92, 30 + 24 * i, 44, 20, "", "ink-critic")
    d.text(38, 190, "state", "faint", size=11.5)
    d.text(92, 190, "value", "faint", size=11.5)
    d.arrow([(126, 92), (160, 92)])
    columns = [[(180 + 48 * i, 92 + 24 * (j - (n - 1) / 2)) for j in range(n)] for i, n in enumerate((3, 5, 5, 1))]
    for one, other in pairwise(columns):
        for a in one:
            for b in other:
                d.line([a, b], "thin quiet")
    for i, column in enumerate(columns):
        for x, y in column:
            d.dot(x, y, "ink-state" if i == 0 else "ink-critic", 5.5)
    d.text(182, 190, "observation", "faint", size=11.5)
    d.text(318, 190, "value", "faint", "end", size=11.5)
    return d.svg()


FAMILIES = {  # the question, and who answers it
    ("choices", "own steps"): ["dqn", "r2d2", "ppo"],
    ("numbers", "own steps"): ["ddpg", "td3", "sac", "ppo"],
    ("choices", "an expert's too"): ["dqfd", "r2d3", "bc"],
}


def families() -> str:
    """12."""
    d = Drawing(WIDTH, HEIGHT + 10, "Algorithms by actions and demonstrations")
    names = {"bc": "BC", "dqfd": "DQfD"}
    d.box(170, 26, 170, 34, "actions?", "ink-state")
    d.arrow([(120, 44), (92, 78)])
    d.arrow([(220, 44), (256, 78)])
    d.text(84, 64, "discrete", "", "end", size=12)
    d.text(262, 64, "continuous", "", "start", size=12)
    d.box(256, 122, 150, 80, "", "ink-actor")
    d.text(256, 108, "replay: DDPG, TD3, SAC", "ink-actor", size=11.5)
    d.text(256, 132, "on-policy: PPO", "ink-actor", size=11.5)
    d.box(88, 122, 164, 80, "", "ink-critic")
    d.text(88, 102, "replay: DQN", "ink-critic", size=11.5)
    d.text(88, 122, "recurrent: R2D2", "ink-critic", size=11.5)
    d.text(88, 142, "on-policy: PPO", "ink-critic", size=11.5)
    d.arrow([(88, 163), (88, 182)])
    demonstrations = ", ".join(names.get(name, name.upper()) for name in FAMILIES["choices", "an expert's too"])
    d.text(10, 200, f"with demonstrations: {demonstrations}", "ink-target strong", "start", size=11.5)
    return d.svg()
