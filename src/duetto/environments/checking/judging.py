"""Judge what was seen while an environment was played: faults, observations, rewards, ends, speed."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
from gymnasium.wrappers import TimeLimit

from duetto.environments import successes
from duetto.environments.allowing import KEY, MISNAMED
from duetto.environments.checking.findings import Finding, broken, costs, fine
from duetto.environments.checking.playing import Played

LARGE = 100.0  # networks learn well from numbers of about 1
SLOW = 300.0  # steps a second; below this, the environment is most of a run's time
MUCH, LONG = 0.3, 1e-3  # of the time in resets, if each takes that many seconds at least


def faults(seen: Played) -> Iterator[Finding]:
    """Judge what would end a run: a broken contract, numbers that are not finite."""
    if seen.fault:
        yield broken("contract", seen.fault)
    if seen.unfinite:
        yield broken(
            "numbers",
            f"{seen.unfinite}. Training stops there. Look for the cause in the environment, or end the episode before "
            "it happens.",
        )
    if not (seen.fault or seen.unfinite):
        yield fine("contract", f"reset and step give what they should, in {seen.steps:,} steps of random actions.")


def observations(seen: Played) -> Iterator[Finding]:
    """Judge observations: dtypes, bounds, sizes, and whether their memory is reused; and masks and changed actions."""
    for part, given in seen.kinds.items():
        yield costs(
            "observations",
            f"The {part} is {given}. Duetto converts it to float32 at each step: give np.float32, and that is saved.",
        )
    for part, how in seen.rounded.items():
        yield costs(
            "observations",
            f"The {part} has numbers that float32, which networks take, does not tell apart: {how}. Subtract an offset "
            "that they share, or scale them, in the environment or a wrapper.",
        )
    for part, how in seen.outside.items():
        yield costs(
            "observations",
            f"The {part} leaves its space: {how}. Duetto does not rely on these bounds, others do: correct them.",
        )
    if seen.largest > LARGE:
        yield costs(
            "observations",
            f"Observations reach {seen.largest:.4g}, and networks learn best from numbers of about 1. Scale them in "
            "the environment, or have them normalised (--normalize-observations).",
        )
    if seen.shared:
        yield costs(
            "observations",
            "It changes observations that it has given before: they are one buffer. Duetto copies each; wrappers that "
            "keep observations, and other libraries, go wrong. Give a copy.",
        )
    if seen.pushed:
        yield costs(
            "actions",
            "It changes the action that it is handed. Duetto hands over a copy; others do not. Copy it first.",
        )
    if seen.masked:
        yield fine(
            "actions",
            "info has an action_mask: algorithms that choose take allowed actions alone, but bc, dqfd and r2d3 refuse; "
            "of actions that are numbers it says nothing.",
        )
    if seen.steps and not (seen.kinds or seen.rounded or seen.outside or seen.largest > LARGE or seen.shared):
        yield fine("observations", "Observations keep to their space, and each is an array of its own.")


def rewards(seen: Played) -> Iterator[Finding]:
    """Judge rewards: how large they are, and whether they differ at all."""
    if not seen.rewards or seen.unfinite:
        return
    least, most = min(seen.rewards) + 0.0, max(seen.rewards) + 0.0  # no -0
    if least == most:
        yield fine(
            "rewards",
            f"Every reward was {most:g}. If that is not what random actions deserve, look at it; rewards that are rare "
            "need exploration, demonstrations, or goals.",
        )
    elif max(abs(least), abs(most)) > LARGE:
        yield costs(
            "rewards",
            f"Rewards reach from {least:.4g} to {most:.4g}, and the values that are learned are their sums. Scale them "
            "down, or have them scaled where the algorithm can (--normalize-rewards of ppo).",
        )
    else:
        yield fine("rewards", f"Rewards are from {least:.4g} to {most:.4g}.")


def ends(env: gymnasium.Env, seen: Played) -> Iterator[Finding]:
    """Judge episodes' ends: whether terminations are truncations in truth, and whether episodes end at all."""
    limit = time_limit(env)
    if seen.marked:
        yield broken(
            "ends",
            "It ends with terminated where info says TimeLimit.truncated, as the old Gym did: values would be learned "
            "as if nothing came after a time limit. Give truncated=True there, and terminated=False.",
        )
    if seen.fault or seen.unfinite:
        return
    if not seen.episodes:
        yield _endless(seen.steps, limit)
        return
    lengths = [length for length, _, _ in seen.episodes]
    both = sum(terminated and truncated for _, terminated, truncated in seen.episodes)
    if 2 * both > len(lengths):  # now and then a task is over just when the time is up
        yield broken(
            "ends",
            f"{both} of {len(lengths)} episodes ended with terminated and truncated at once, and the first one counts: "
            "values are learned as if nothing came after. Give terminated=True only where the task is over, and "
            "truncated=True alone for a time limit.",
        )
    cut = sum(truncated for _, _, truncated in seen.episodes)
    if not cut and len(lengths) >= 3 and len(set(lengths)) == 1 and lengths[0] > 1:
        yield costs(
            "ends",
            f"All {len(lengths)} episodes terminated after exactly {lengths[0]} steps. If that is a time limit, it has "
            "to be truncated=True with terminated=False (or max_episode_steps where it is registered): otherwise "
            "values are learned as if nothing came after it. If the task really ends there, observe the time left.",
        )
        return
    if limit is None and not cut and len(lengths) < 3:
        yield costs(
            "ends",
            f"Only {len(lengths)} episode(s) ended in {seen.steps:,} steps, and there is no time limit: one that never "
            f"ends would hold up evaluations for ever. {_LIMIT}",
        )
    done = sum(terminated for _, terminated, _ in seen.episodes)
    told = f"{len(lengths)} episodes of {min(lengths)} to {max(lengths)} steps: {cut} truncated, {done} terminated."
    yield fine("ends", f"{told}{f' The time limit is {limit} steps.' if limit else ''}")


_LIMIT = "Give it max_episode_steps where it is registered, or wrap it in gymnasium.wrappers.TimeLimit."


def _endless(steps: int, limit: int | None) -> Finding:
    if limit is not None:
        return fine("ends", f"No episode ended in {steps:,} steps; the time limit is {limit} steps.")
    return costs(
        "ends",
        f"No episode ended in {steps:,} steps, and there is no time limit: evaluations, which play whole episodes, may "
        f"never end. {_LIMIT}",
    )


def time_limit(env: gymnasium.Env) -> int | None:
    """Return the steps after which Gymnasium truncates; None where it does not."""
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            return layer._max_episode_steps
        layer = layer.env
    return env.spec.max_episode_steps if env.spec else None


def speed(seen: Played) -> Iterator[Finding]:
    """Judge the steps a second, and the share of time that resets take."""
    total = seen.step_seconds + seen.reset_seconds
    if not seen.steps or not total:
        return
    rate, share = seen.steps / total, seen.reset_seconds / total
    said = f"{rate:,.0f} steps a second in this process, resets included, which take {share:.0%} of the time"
    if rate < SLOW:
        yield costs(
            "speed",
            f"{said}: a million steps take {1e6 / rate / 3600:.1f} hours of the environment alone. Several at once "
            "help (--num-envs 8 --vectorization subprocess).",
        )
    elif share > MUCH and seen.reset_seconds > LONG * seen.resets:
        yield costs(
            "speed",
            f"{said}: all environments of a run wait for each reset. Make what stays the same once, in __init__, or "
            "put them in processes (--vectorization subprocess).",
        )
    else:
        yield fine("speed", f"{said}.")


def info(env: gymnasium.Env, seen: Played) -> Iterator[Finding]:
    """Judge the keys of info."""
    if not seen.masked and env.has_wrapper_attr("action_masks"):
        yield costs(
            "info",
            f"It has a method action_masks, which nobody reads. Give what it returns as info[{KEY!r}] in each reset "
            "and step.",
        )
    odd = [key for key in seen.info_keys if not isinstance(key, str)]
    if odd:
        yield costs("info", f"info has the key {odd[0]!r}. Vector environments want text as keys: use str.")
    elif seen.info_keys:
        known = ("lives", KEY, *successes.KEYS)
        read = [name for name in known if name in seen.info_keys]
        reads = f"{' and '.join(read)} of these" if read else f"none of these (only {', '.join(known)})"
        yield fine("info", f"info has {', '.join(sorted(seen.info_keys))}; Duetto reads {reads}.")
    if not seen.masked and (misnamed := sorted(seen.info_keys.intersection(MISNAMED))):
        yield costs(
            "info",
            f"info has {misnamed[0]}, which nobody reads. If it says which actions are allowed, call it {KEY}.",
        )
