"""Atari in ale-py's own vector environment: emulators, preprocessing and stacking in C++ threads.

ale-py cannot save these emulators. But a seed and the actions determine their games, so a `Tape` records both, one byte
for each action, and a resume plays them again. A game also depends on the games before it, through random numbers and
memory that a reset does not clear. A new seed would end this dependence, but costs as much as 400 steps. So a tape
records many games. Once it has `LONGEST` actions or more, the next game starts with a new seed and an empty tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from typing_extensions import override

from duetto.cpu import cores
from duetto.environments import env_registry
from duetto.environments.atari import FRAMES_PER_SECOND, AtariOptions, sticky_actions
from duetto.environments.engines import Engine, StepResult
from duetto.environments.exact_resume import ELSEWHERE
from duetto.environments.obs_tree import Tree

LONGEST = 20_000  # actions on a tape before a game starts with a new seed; 8 such tapes replay in 27 s on two cores
RESET = 255  # on the tape: a game starts without a new seed
SEEDS = 2**31
LEAVE, SEED, PLAIN = 0, 1, 2  # what happens to an environment before a step of a `timetable`
UNLIMITED = 2**30  # frames; `NativeAtari.step` truncates games, since ale-py would leave out the last step's frames


class NativeAtari(Engine):
    """Games in `ale_py.AtariVectorEnv`, with tapes that repeat them after a resume.

    ale-py's autoreset mode NEXT_STEP would lose a step at each game's end. So `step` resets finished games at once,
    with a reset mask. If a game ends within the frames of a step, ale-py returns the previous step's frame again, as
    Gymnasium does.
    """

    def __init__(self, game: EnvSpec, options: AtariOptions, num_envs: int) -> None:
        ale: Any = env_registry.import_family(env_registry.ATARI, "ale_py", game.id)
        self._vector = ale.AtariVectorEnv(
            game.kwargs["game"],
            num_envs,
            num_threads=min(num_envs, cores()),
            max_num_frames_per_episode=UNLIMITED,
            repeat_action_probability=sticky_actions(game, options),
            full_action_space=options.full_action_space,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=options.size,
            img_width=options.size,
            grayscale=True,
            stack_num=options.stack,
            frameskip=options.frame_skip,
            maxpool=True,
            noop_max=options.noop_max,
            use_fire_reset=options.fire_reset is True,
            reward_clipping=False,
        )
        space = gymnasium.spaces.Box(0, 255, (options.stack, options.size, options.size), np.uint8)
        metadata = {"render_fps": FRAMES_PER_SECOND / options.frame_skip, "render_modes": ["rgb_array", "human"]}
        super().__init__(num_envs, game.id, space, self._vector.single_action_space, metadata)
        self.stacked: int = options.stack
        self.has_fire: bool = ale.Action.FIRE in self._vector.ale.get_action_set()  # a button of this game
        self._max_steps = options.max_steps
        self._steps = np.zeros(num_envs, np.int64)  # since each game's first observation
        self._tapes = [Tape(0)] * num_envs

    @override
    def reset(self, seed: int) -> np.ndarray:
        self._tapes = [Tape(seed + env) for env in range(self.num_envs)]
        self._steps[:] = 0
        return self._begin(np.ones(self.num_envs, bool), [tape.seed for tape in self._tapes])

    @override
    def step(self, actions: np.ndarray) -> StepResult:
        next_obs, reward, terminated, _, infos = self._vector.step(actions)
        for tape, action in zip(self._tapes, actions.tolist(), strict=True):
            tape.actions.append(action)
        self._steps += 1
        truncated = (self._steps >= self._max_steps) & ~terminated
        done = terminated | truncated
        obs = next_obs.copy()
        if done.any():
            seeds = [self._tapes[env].next_game() for env in np.flatnonzero(done)]
            self._steps[done] = 0
            obs[done] = self._begin(done, seeds)[done]
        return StepResult(next_obs, reward.astype(np.float64), terminated, truncated, obs, done, lives=infos["lives"])

    @override
    def reset_env(self, env: int, seed: int) -> np.ndarray:
        self._tapes[env], self._steps[env] = Tape(seed), 0
        return self._begin(np.arange(self.num_envs) == env, [self._tapes[env].seed])

    @override
    def save(self) -> dict[str, Any]:
        return {str(env): tape.state_dict() for env, tape in enumerate(self._tapes)}

    @override
    def load(self, saved: dict[str, Any], obs: Tree, seed: int) -> tuple[Tree, list[str]]:
        """Replay the tapes. If an environment's last observation then differs from `obs`, it starts a new game."""
        tapes = [saved[str(env)] for env in range(self.num_envs)]
        self._tapes = [Tape(**one | {"actions": bytearray(one["actions"].astype(np.uint8))}) for one in tapes]
        self._steps[:] = [tape.steps for tape in self._tapes]
        actions, starts = timetable(self._tapes)
        # ale-py's first reset must include all environments.
        self._begin(np.ones(self.num_envs, bool), [tape.seed for tape in self._tapes])
        starts[0, starts[0] == SEED] = LEAVE
        for now, action in zip(starts, actions.astype(np.int64), strict=False):
            self._begin_again(now)
            self._vector.step(action)
        self._begin_again(starts[-1])
        found = self._begin(np.zeros(self.num_envs, bool), [])  # resets none, returns all observations
        assert isinstance(obs, np.ndarray)
        why = ["" if np.array_equal(one, other) else ELSEWHERE for one, other in zip(found, obs, strict=True)]
        for env in np.flatnonzero(why):
            found[env] = self.reset_env(int(env), seed + int(env))[env]
        return found, why

    @override
    def close(self) -> None:
        self._vector.close()

    def _begin(self, mask: np.ndarray, seeds: list[int | None]) -> np.ndarray:
        """Start a game in each environment where `mask` (N,) is True; return the observations of all N environments.

        `seeds` has a seed for each game that starts; None: the environment's random numbers continue.
        """
        given = np.array([-1 if seed is None else seed for seed in seeds], np.int64)
        options = None if mask.all() else {"reset_mask": mask.copy()}
        return self._vector.reset(seed=given, options=options)[0]

    def _begin_again(self, what: np.ndarray) -> None:
        envs = np.flatnonzero(what != LEAVE)
        if envs.size:
            self._begin(what != LEAVE, [self._tapes[env].seed if what[env] == SEED else None for env in envs])


@dataclass
class Tape:
    """The actions of one environment since it last got a new seed.

    Attributes:
        origin: The environment's first seed. All its later seeds follow from `origin` and `number`.
        number: Number of new seeds since the first one.
        actions: One byte for each action, and `RESET` where a game started without a new seed.
    """

    origin: int
    number: int = 0
    actions: bytearray = field(default_factory=bytearray)

    @property
    def seed(self) -> int:
        """The current seed."""
        if not self.number:
            return self.origin % SEEDS
        return int(np.random.SeedSequence([self.origin, self.number]).generate_state(1)[0]) % SEEDS

    def next_game(self) -> int | None:
        """Record that a game starts; return its seed, or None if it continues with the current random numbers."""
        if len(self.actions) < LONGEST:
            self.actions.append(RESET)
            return None
        self.number += 1
        self.actions.clear()
        return self.seed

    @property
    def steps(self) -> int:
        """Number of steps since the current game started."""
        return len(self.actions) - 1 - self.actions.rfind(RESET)

    def state_dict(self) -> dict[str, Any]:
        """Return the fields for a checkpoint."""
        return {"origin": self.origin, "number": self.number, "actions": np.frombuffer(bytes(self.actions), np.uint8)}


def timetable(tapes: Sequence[Tape]) -> tuple[np.ndarray, np.ndarray]:
    """Plan how environments that can only step together replay tapes of different lengths.

    All replays end at the same step: shorter tapes start later.

        step            0      1      2      after the last
        environment 0   SEED a      b PLAIN c                    a b RESET c
        environment 1        .      . SEED  d   PLAIN            d RESET
        environment 2        .      .       .   SEED             no action

    Returns:
        The actions (T, N) uint8, 0 before an environment's replay starts. A plan (T + 1, N) uint8 for the moment before
        each action and after the last: LEAVE the environment alone, start a game with the tape's seed (SEED), or start
        a game without a new seed (PLAIN).
    """
    plans: list[list[tuple[int, int]]] = []  # of each environment: SEED, PLAIN or LEAVE, and the action after it
    for tape in tapes:
        what, plan = SEED, []
        for byte in tape.actions:
            if byte == RESET:
                what = PLAIN
            else:
                plan.append((what, byte))
                what = LEAVE
        plans.append([*plan, (what, 0)])
    length = max(map(len, plans))
    table = np.array([[(LEAVE, 0)] * (length - len(plan)) + plan for plan in plans], np.uint8)
    return table[:, :-1, 1].T, table[:, :, 0].T.copy()
