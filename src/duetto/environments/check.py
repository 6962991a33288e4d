"""Check an environment before training: `duetto check` and `duetto.check`.

The environment runs in a separate process, so that a crash or a hang becomes a finding. The checker plays random
actions and examines the results, runs Gymnasium's checker, and compares the steps after a resume.
"""

from __future__ import annotations

import re
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import env_checker
from gymnasium.vector import VectorEnv

from duetto.algorithms import ALGORITHMS
from duetto.environments import atari, env_registry, envpool_vector, make_env, obs_tree, validation
from duetto.environments.actions import KEY
from duetto.environments.engines import label_of
from duetto.environments.spaces import Layout
from duetto.environments.subproc import MORE_TIME, SubprocEngine
from duetto.environments.vec_env import Episode, Transition, VecEnv
from duetto.errors import CheckpointError, DuettoError, EnvironmentFailedError, NonFiniteError, UsageError
from duetto.networks.preprocessing import image_warnings
from duetto.networks.spaces import Box, Dict

STEPS, TIMEOUT = 2000, 60.0
NORMALIZE = "--normalize-observations collected (of ppo: --normalize-observations)"
LARGE = 100.0  # networks learn well from numbers of about 1
SLOW = 300.0  # steps per second; below this, the environment takes most of a run's time
MAX_SECONDS = 10.0  # of random actions: a slow environment plays fewer steps

Level = Literal["broken", "costs", "fine"]
Trace = list[tuple[str, int]]  # a name and a checksum for the first observation, then for the results of each step


@dataclass(frozen=True)
class Finding:
    """A fact that the checker found about an environment.

    Attributes:
        level: "broken": training fails or learns the wrong thing; "costs": training is correct, but something is slower
            or missing; "fine".
        about: The subject, such as "spaces", "observations", "rewards", "episodes", "determinism", "resume", "render".
        sentence: The fact and, unless the level is "fine", what to do.
    """

    level: Level
    about: str
    sentence: str


class Findings(list[Finding]):
    """The findings so far.

    Attributes:
        doing: The current part of the check, such as "while it was made". If the environment crashes, the finding says
            "That was while it was made."
    """

    doing: str = "while it was made"

    def add(self, about: str, *, broken: str = "", costs: str = "", fine: str = "") -> None:
        """Add a finding: the first of these sentences that is not empty. Its level is the argument's name."""
        level: Level = "broken" if broken else "costs" if costs else "fine"
        if sentence := broken or costs or fine:
            self.append(Finding(level, about, sentence))


# ------------------------------------------------------------------------------------------- in other processes
def check(
    environment: Any,
    *,
    environment_options: Mapping[str, Any] | None = None,
    steps: int = STEPS,
    timeout: float = TIMEOUT,
) -> list[Finding]:
    """Return findings about an environment: what would break or slow down training on it, and what is fine.

    This makes the environment in a new process and plays random actions; it trains nothing and writes nothing. Errors,
    crashes and hangs of the environment become findings and are not raised.

    Args:
        environment: An id, FILE.py:NAME, a Gymnasium environment, or a callable that makes one (a class or function).
        environment_options: Arguments for its constructor, as in `duetto.train`.
        steps: Maximum number of random steps; a slow environment takes fewer.
        timeout: Seconds after which a call is reported as a hang. The constructor always has at least 120 seconds.

    Raises:
        UsageError: The environment does not exist, or is no single Gymnasium environment.
    """
    steps = int(steps)
    if steps < 1 or timeout <= 0:
        raise UsageError(f"steps is {steps} and timeout is {timeout:g}. Set both above 0.")
    environment = env_registry.resolved(environment)
    name = label_of(environment)
    if isinstance(environment, VectorEnv):
        raise UsageError(f"{name} is a vector environment. Pass the id or class of the single environment.")
    if env_registry.is_device(environment) or name.startswith(envpool_vector.PREFIX):
        raise UsageError(f"{name} is no Gymnasium environment, so it cannot be checked. Train with it.")
    game = None
    if isinstance(environment, str):
        game = atari.find(environment)
        env_registry.check_known(environment)
    spec = env_registry.registration(environment)
    with tempfile.TemporaryFile() as printed:

        def make(render_mode: str | None = "rgb_array" if game else None) -> VecEnv:
            single = partial(_single, environment, dict(environment_options or {}), spec, render_mode)
            return VecEnv(SubprocEngine(single, 1, name, timeout, printed))

        return _check(make, steps, game is None, printed)


def _single(environment: Any, kwargs: dict[str, Any], spec: EnvSpec | None, render_mode: str | None) -> gymnasium.Env:
    """Make the environment, in the worker process."""
    env_registry.register_spec(spec)
    return make_env.make_eval(environment, kwargs=kwargs, render_mode=render_mode).environments[0].env


def _check(make: Callable[..., VecEnv], steps: int, resumes: bool, printed: IO[bytes]) -> Findings:
    findings, about = Findings(), "making"
    try:
        with closing(make()) as vec:
            about, findings.doing = "contract", "while random actions were played"
            check_spaces(findings, vec)
            with closing(make()) as other:
                repeatable = check_determinism(findings, vec, other)
            check_rollout(findings, vec, steps)
            check_gymnasium(findings, vec)
            if repeatable and resumes:  # not for Atari games, which training runs and resumes in another engine
                with closing(make()) as other:
                    check_resume(findings, vec, other, steps)
            check_render(findings, make, vec.engine.metadata)
        findings.add("processes", fine="It can be pickled: vectorization=subprocess works.")
    except DuettoError as error:
        about = "numbers" if isinstance(error, NonFiniteError) else about
        sentence = str(error)
        if isinstance(error, EnvironmentFailedError):
            sentence = " ".join([error.sentence, *re.findall(r'File "[^"]+", line \d+', error.trace)[-1:]])
            sentence = sentence.replace(MORE_TIME, "--timeout")
            if not error.trace:  # it raised nothing: it crashed or hangs
                about, sentence = "process", f"{sentence} That was {findings.doing}.{_last_line(printed)}"
        findings.add(about, broken=f"{sentence} Nothing after this was checked.")
    return findings


def _last_line(printed: IO[bytes]) -> str:
    printed.seek(0)
    lines = printed.read().decode(errors="replace").strip().splitlines()
    return f" Its last output: {lines[-1][:200]!r}." if lines else ""


# ------------------------------------------------------------------------------------------- random actions
def play(vec: VecEnv, seed: int, steps: int) -> Iterator[tuple[Transition, list[Episode]]]:
    """Yield up to `steps` steps with random allowed actions; stop after MAX_SECONDS. Raises the errors of `step`."""
    random, started = np.random.default_rng(seed), time.perf_counter()
    for _ in range(steps):
        if time.perf_counter() - started > MAX_SECONDS:
            return
        yield vec.step(vec.sample_actions(random))


# ------------------------------------------------------------------------------------------- rules
def check_spaces(findings: Findings, vec: VecEnv) -> None:
    """Name the algorithms that accept the spaces; report wrappers that training refuses."""
    accepting, reasons = [], []
    for name, algorithm in ALGORITHMS.items():
        try:
            algorithm().check_spaces(vec.observation_space, vec.action_space, vec.name)
            accepting.append(name)
        except UsageError as error:
            reasons.append(str(error))
    spaces = f"Observations {vec.observation_space}, actions {vec.action_space}"
    spaces = re.sub(r"(\[[^\]]{60})[^\]]*\]", r"\1 ...]", spaces)
    refused = f"{spaces}: no algorithm can learn from it. {' '.join(dict.fromkeys(reasons))}"
    fine = f"{spaces}: {', '.join(accepting)} can learn from it."
    findings.add("spaces", broken="" if accepting else refused, fine=fine)
    for sentence in image_warnings(vec.observation_space):
        findings.add("images", costs=sentence)
    if wrapper := vec.call(validation.running_statistics):
        refused = f"Training refuses its {wrapper}: evaluations would have other running statistics. Remove the wrapper"
        findings.add("normalization", broken=f"{refused} and use {NORMALIZE}.")


def check_rollout(findings: Findings, vec: VecEnv, most: int) -> None:
    """Check the results of at most `most` random actions."""
    started, rewards = time.perf_counter(), []
    ends: list[tuple[int, bool, bool]] = []  # length, terminated and truncated of each episode
    ranges: dict[str, np.ndarray] = {}  # smallest and largest values of each part of observations, (2, ...)
    vec.reset(5)
    for transition, episodes in play(vec, 5, most):
        flags = bool(transition.terminated[0]), bool(transition.truncated[0])
        ends += [(episode.length, *flags) for episode in episodes]
        rewards.append(float(transition.reward[0]))
        for name, value in [*obs_tree.parts(transition.next_obs), *obs_tree.parts(vec.obs)]:
            low, high = ranges.get(name, (value, value))
            ranges[name] = np.stack([np.minimum(low, value), np.maximum(high, value)])
    seconds, steps = time.perf_counter() - started, len(rewards)
    findings.add("contract", fine=f"reset and step return valid values in {steps:,} steps of random actions.")
    _check_observations(findings, vec, ranges)
    low, high = min(rewards), max(rewards)
    said = f"Rewards range from {low:.4g} to {high:.4g}"
    large = f"{said}, and values are sums of them. Scale them down, or let PPO do it (--normalize-rewards)."
    rare = ". Check that random actions should get this; rare rewards need exploration, demonstrations or goals"
    too_large = low < high and max(abs(low), abs(high)) > LARGE
    findings.add("rewards", costs=large if too_large else "", fine=f"{said}{rare if low == high else ''}.")
    steps_of = "_max_episode_steps"
    limit = vec.call(lambda env: env.get_wrapper_attr(steps_of) if env.has_wrapper_attr(steps_of) else None)
    _check_episodes(findings, limit, ends, steps)
    if vec.masked:
        fine = f"info has an {KEY}: algorithms choose among allowed actions, but bc, dqfd and r2d3 refuse masks."
        findings.add("masks", fine=fine)
    elif vec.call(lambda env: env.has_wrapper_attr("action_masks")):
        costs = f"Its method action_masks is not read. Return the mask as info[{KEY!r}] in each reset and step."
        findings.add("masks", costs=costs)
    rate = steps / seconds
    hours = f"{rate:,.0f} steps per second: a million steps need {1e6 / rate / 3600:.1f} hours."
    advice = " Use several processes, at most one per core (--num-envs N --vectorization subprocess)."
    slow = hours + advice if rate < SLOW else ""
    findings.add("speed", costs=slow, fine=f"{rate:,.0f} steps per second in a separate process, resets included.")


def _check_observations(findings: Findings, vec: VecEnv, ranges: dict[str, np.ndarray]) -> None:
    costs, space, largest = [], vec.observation_space, 0.0
    for name, part in space.parts if isinstance(space, Dict) else [("", space)]:
        if not isinstance(part, Box) or part.dtype == "uint8":
            continue
        label, seen = f"observation {name}".rstrip(), ranges[name].reshape(2, -1)
        low, high = part.bounds
        slack = 1e-6 * (1 + np.abs([low, high]))  # float32 rounds bounds
        left = np.any(seen < low - slack[0], axis=0) | np.any(seen > high + slack[1], axis=0)
        if left.any():
            at = int(np.argmax(left))
            costs.append(
                f"The {label} leaves its space: element {at} ranges from {seen[0, at]:.6g} to {seen[1, at]:.6g}, its "
                f"bounds are {low[at]:.6g} and {high[at]:.6g}. Correct the bounds: other libraries rely on them."
            )
        largest = max(largest, float(np.abs(seen).max()))
        if np.abs(seen).max() > LARGE:
            costs.append(
                f"The {label} reaches {np.abs(seen).max():.4g}, and networks learn best from numbers of about 1. Scale "
                f"it, or use {NORMALIZE}."
            )
    scale = f"; the largest number is {largest:.4g} (networks learn best from about 1)" if largest else ""
    fine = f"Observations stay within their bounds{scale}."
    findings.add("observations", costs=" ".join(costs), fine=fine)


def _check_episodes(findings: Findings, limit: int | None, ends: list[tuple[int, bool, bool]], steps: int) -> None:
    """Look for time limits reported as terminations, and for episodes that never end."""
    lengths, count = [length for length, _, _ in ends], len(ends)
    terminated = sum(terminated for _, terminated, _ in ends)
    truncated = sum(truncated and not terminated for _, terminated, truncated in ends)
    both = sum(terminated and truncated for _, terminated, truncated in ends)
    longest = max(lengths, default=0)
    at_most = lengths.count(longest)
    broken = costs = ""
    if 2 * both > count:  # a few are right: a task may be over exactly at the time limit
        broken = (
            f"{both} of {count} episodes ended with terminated and truncated at once: values are learned as if nothing "
            "came after a time limit. Return terminated=True only if the task is over, and truncated=True alone for a "
            "time limit."
        )
    elif not truncated and not both and longest > 1 and at_most >= max(3, count / 2):
        costs = (
            f"{f'All {count}' if at_most == count else f'{at_most} of {count}'} episodes terminated after exactly "
            f"{longest} steps. If this is a time limit, return truncated=True and "
            "terminated=False (or register max_episode_steps): values are learned as if nothing came after it. If the "
            "task really ends there, observe the remaining time."
        )
    elif limit is None and not truncated and not both and count < 3:
        costs = (
            f"{count} episode(s) ended in {steps:,} steps, and there is no time limit: evaluations, which play whole "
            "episodes, may never end. Register max_episode_steps, or wrap it in gymnasium.wrappers.TimeLimit."
        )
    said = f"{count} episodes of {min(lengths)} to {max(lengths)} steps" if lengths else "No episode ended"
    limited = f"The time limit is {limit} steps." if limit else "The environment ends them itself, without a TimeLimit."
    fine = f"{said}: {truncated} truncated, {terminated} terminated. {limited}"
    findings.add("episodes", broken=broken, costs=costs, fine=fine)


class _BoolFlags(gymnasium.Wrapper):
    """A wrapper that makes `terminated` and `truncated` bool: Gymnasium's checker takes np.False_ for a truncation."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.reset: Any = env.reset  # keep the environment's signature, which the checker inspects

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, bool(terminated), bool(truncated), info


def check_gymnasium(findings: Findings, vec: VecEnv) -> None:
    """Run Gymnasium's checker, which stops at its first objection; skip it for environments with action masks."""
    if vec.masked:
        return
    findings.doing = "while Gymnasium's checker ran"
    costs = vec.call(_objection)
    if "observation space" in costs:
        costs += vec.call(_wrong_dtypes) or " Return observations with its shape and dtype, within its bounds."
    findings.add("gymnasium", costs=costs, fine="Gymnasium's checker objects to nothing.")


def _objection(env: gymnasium.Wrapper) -> str:
    try:
        env_checker.check_env(_BoolFlags(env.env), skip_render_check=True, skip_close_check=True)
    except Exception as error:  # assertions, and errors of the environment
        objection = " ".join(str(error).split()) or type(error).__name__
        return f"Gymnasium's checker, which stops at its first objection, objects: {objection}"
    return ""


def _wrong_dtypes(env: gymnasium.Env) -> str:
    """Return a sentence for each part of the observation whose dtype is not its space's."""
    obs, _ = env.reset(seed=0)
    sentences = ""
    for leaf in Layout(env.observation_space).leaves:
        given, wanted = obs_tree.array(leaf.find(obs)).dtype, leaf.find(env.observation_space).dtype
        if given != wanted:
            sentences += f" The {leaf.describe()} is {given}, its space says {wanted}: use astype(np.{wanted})."
    return sentences


def check_render(findings: Findings, make: Callable[..., VecEnv], metadata: dict[str, Any]) -> None:
    """Render a frame, as `duetto video` does."""
    costs, fine = 'Its metadata lacks the render mode "rgb_array". Add it, and render() for it.', ""
    if "rgb_array" in ((metadata or {}).get("render_modes") or ()):
        findings.doing = "while a frame was rendered"
        try:
            with closing(make(render_mode="rgb_array")) as vec:
                vec.reset(0)
                height, width, _ = vec.render().shape
            costs, fine = "", f"It renders frames of {width} × {height}."
        except DuettoError as error:
            costs = error.sentence if isinstance(error, EnvironmentFailedError) else str(error)
    findings.add("render", costs=costs and f"duetto video cannot record it. {costs}", fine=fine)


# ------------------------------------------------------------------------------------------- in new environments
def check_determinism(findings: Findings, vec: VecEnv, other: VecEnv) -> bool:
    """Return whether a seed gives the same steps, twice in one environment and in a second environment."""
    traces = []
    for env in (vec, vec, other):
        env.reset(7)
        traces.append(_trace(env, 7, 100))
    again, elsewhere = (_difference(traces[0], trace) for trace in traces[1:])
    different = f"{again} in one environment" if again else f"{elsewhere} in two environments" if elsewhere else ""
    cause = (
        f"With reset(seed=7) and the same actions, the {different}. A run cannot be repeated. Call "
        "super().reset(seed=seed) in reset, draw from self.np_random only (not random or np.random), set all state in "
        "reset, and look for code that depends on time, sets or threads."
    )
    fine = "A seed gives the same steps, in one environment and in another."
    findings.add("determinism", costs=cause if different else "", fine=fine)
    return not different


def check_resume(findings: Findings, vec: VecEnv, other: VecEnv, steps: int) -> None:
    """Load a saved state in a new environment, and compare the steps that follow."""
    vec.reset(3)
    _trace(vec, 3, steps // 2)
    findings.doing = "after its state was saved"
    try:
        other.load_state_dict(vec.state_dict())
        after = [_trace(env, 4, steps // 4) for env in (vec, other)]
        cause = _difference(*after) if other.resumed_exactly else ", ".join(other.not_restored)
    except CheckpointError as error:
        cause = str(error).rstrip(".")
    costs = (
        f"It does not continue exactly from a checkpoint ({cause}): a resumed run starts new episodes. Define "
        "state_dict() and load_state_dict() if it has state that outlives an episode."
    )
    fine = "It continues exactly from a checkpoint: a killed run resumes bit for bit."
    findings.add("resume", costs=costs if cause else "", fine=fine)


def _trace(vec: VecEnv, seed: int, steps: int) -> Trace:
    trace = [("first observation differs", _checksum(vec.obs))]
    for number, (step, _) in enumerate(play(vec, seed, steps), 1):
        results = {"observation": step.next_obs, "reward": step.reward, "next episode's first observation": vec.obs}
        results["end of the episode"] = np.stack([step.terminated, step.truncated])
        trace += [(f"{name} differs at step {number}", _checksum(result)) for name, result in results.items()]
    return trace


def _checksum(tree: obs_tree.Tree) -> int:
    return zlib.crc32(b"".join(part.tobytes() for _, part in obs_tree.parts(tree)))


def _difference(first: Trace, second: Trace) -> str:
    """Return the name of the first difference; "" if there is none."""
    pairs = zip(first, second, strict=False)
    return next((what for (what, expected), (_, found) in pairs if found != expected), "")
