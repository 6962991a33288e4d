"""Check determinism and exact resume, in new environments."""

from __future__ import annotations

import zlib

import numpy as np

from duetto.environments import obs_tree
from duetto.environments.check.findings import Findings
from duetto.environments.check.rules import play
from duetto.environments.vec_env import VecEnv
from duetto.errors import CheckpointError

Trace = list[dict[str, int]]  # checksums of the first observation, then of each step's results by name


def check_determinism(findings: Findings, vec: VecEnv, other: VecEnv) -> bool:
    """Compare steps of one seed in one environment, and in another one; return whether they are equal."""
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
    """Load the state of a later episode in a new environment, and compare the steps after it."""
    vec.reset(3)
    _trace(vec, 3, steps // 2)
    findings.doing = "after its state was saved"
    try:
        other.load_state_dict(vec.state_dict())
        after = [_trace(env, 4, steps // 4) for env in (vec, other)]
        cause = _difference(*after) if other.resumed_exactly else ", ".join(map(str, other.not_restored))
    except CheckpointError as error:
        cause = str(error).rstrip(".")
    costs = (
        f"It does not continue exactly from a checkpoint ({cause}): a resumed run starts new episodes. Define "
        "state_dict() and load_state_dict() if it has state that outlives an episode."
    )
    fine = "It continues exactly from a checkpoint: a killed run resumes bit for bit."
    findings.add("resume", costs=costs if cause else "", fine=fine)


def _trace(vec: VecEnv, seed: int, steps: int) -> Trace:
    trace = [{"first observation": _checksum(vec.obs)}]
    for step, _ in play(vec, seed, steps):
        results = {"observation": step.next_obs, "reward": step.reward, "next episode's first observation": vec.obs}
        ends = {"end of the episode": np.stack([step.terminated, step.truncated])}
        trace.append({name: _checksum(result) for name, result in (results | ends).items()})
    return trace


def _checksum(tree: obs_tree.Tree) -> int:
    return zlib.crc32(b"".join(part.tobytes() for _, part in obs_tree.parts(tree)))


def _difference(first: Trace, second: Trace) -> str:
    """Return what differs first; "" if nothing does."""
    for step, (expected, found) in enumerate(zip(first, second, strict=False)):
        for name in expected:
            if found[name] != expected[name]:
                return f"{name} differs at step {step}" if step else f"{name} differs"
    return ""
