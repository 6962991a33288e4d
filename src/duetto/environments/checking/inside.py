"""The process of the check: it makes the environment, tries one part after the other, and says what it found.

Each line that it writes is a JSON object: {"finding": ...}, {"doing": "what is tried now"}, {"alive": true} at most
once a second while it plays, and at the end {"over": [first, last]}, which of the printed bytes are the playing's.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import partial
from typing import Any

from duetto.algorithms import ALGORITHMS
from duetto.environments import atari, making, recipes, statistics
from duetto.environments.checking import hindsight, judging, keeping, seeds
from duetto.environments.checking.findings import Finding, broken, costs, fine
from duetto.environments.checking.playing import Player
from duetto.environments.faults import Fault, summary
from duetto.environments.stepping import Stepper
from duetto.errors import DuettoError, UsageError
from duetto.networks.encoding import flattened_images

MOST = 30.0  # seconds for the process that looks whether a saved state comes back


def pack(environment: Any, options: dict[str, Any], steps: int, timeout: float) -> bytes:
    """Pack the job for `main`; raises whatever a user's objects do that cannot be pickled."""
    return pickle.dumps((recipes.pack(environment, options), steps, timeout))


def main() -> None:
    """Read the job, do it, and write what it finds."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # environments print
    warnings.simplefilter("ignore")
    recipe, steps, timeout = pickle.load(sys.stdin.buffer)
    spoke, printed = time.monotonic(), [0, 0]

    def say(**message: Any) -> None:
        nonlocal spoke
        spoke = time.monotonic()
        print(json.dumps(message), file=answer)

    def alive() -> None:
        if time.monotonic() - spoke > 1:
            say(alive=True)

    environment, options = recipes.unpack(recipe)
    for found in look(environment, options, steps, timeout, alive):
        if isinstance(found, Finding):
            say(finding=astuple(found))
            continue
        if found in (_PLAYING, _SAVING):
            printed[found == _SAVING] = _printed()
        say(doing=found)
    say(over=[printed[0], max(printed)])


def _printed() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return os.lseek(2, 0, os.SEEK_CUR)


# Between these two nothing speaks but the environment: packages greet when they are imported, and windows complain.
_PLAYING, _SAVING = "while it was played with random actions", "while its state was saved and loaded"


def look(
    environment: Any,
    options: dict[str, Any],
    steps: int,
    timeout: float,
    alive: Callable[[], None] = lambda: None,
) -> Iterator[Finding | str]:
    """Yield all findings; between them, as text, what is done now."""
    make = partial(making.separate, environment, engine=_engine(environment), kwargs=options)
    yield "while it was made"
    try:
        stepper = make()
    except UsageError as error:
        yield broken("making", str(error))
        return
    except SystemExit as error:
        yield broken("making", f"Making it called sys.exit ({error}). Raise an error instead.")
        return
    try:
        yield from _parts(make, stepper, environment, options, steps, timeout, alive)
    except DuettoError as error:
        yield broken("contract", str(error))
    except Fault as fault:
        yield broken("contract", fault.what)
    except Exception as error:  # whatever a user's objects raise where nothing else is tried
        yield broken("contract", f"It raised {summary(error)}. Correct the environment.")
    finally:
        stepper.close()


def _parts(
    make: Callable[..., Stepper],
    stepper: Stepper,
    environment: Any,
    options: dict[str, Any],
    steps: int,
    timeout: float,
    alive: Callable[[], None],
) -> Iterator[Finding | str]:
    yield from _learners(stepper)
    yield from _statistics(environment, stepper)
    for sentence in flattened_images(stepper.observation_space):
        yield costs("images", sentence)
    [env, *_] = stepper.environments
    yield _PLAYING
    player = Player(env, 5, alive)
    seen = player.play(steps)
    yield from judging.faults(seen)
    yield from judging.observations(seen)
    yield from judging.rewards(seen)
    yield from judging.ends(env, seen)
    yield from judging.info(env, seen)
    if seen.fault or seen.unfinite:
        return
    yield from judging.speed(seen)
    yield "while it was tried whether a seed repeats"
    other = make()
    yield from seeds.seeds(env, other.environments[0], alive)
    yield from hindsight.goals(other, alive)
    other.close()
    yield _SAVING
    again = make()
    patience = min(MOST, timeout / 2)
    yield from keeping.saving(again, environment, patience, alive, engine=_engine(environment), kwargs=options)
    again.close()
    yield "while Gymnasium's own checker looked at it"
    yield from keeping.gymnasiums(env)
    yield "while a picture was made of it"
    yield from keeping.video(make, env.metadata)


def _engine(environment: Any) -> Any:
    """Return the engine that steps environments one by one: Atari's native engine has none to look at."""
    return "gymnasium" if isinstance(environment, str) and atari.find(environment) else "auto"


def _learners(stepper: Stepper) -> Iterator[Finding]:
    """Find which algorithms take these spaces."""
    able, reasons = [], {}
    for name, kind in ALGORITHMS.items():
        try:
            kind().check_spaces(stepper.observation_space, stepper.action_space, stepper.name)
        except UsageError as error:
            reasons[name] = str(error)
        else:
            able.append(name)
    spaces = f"Observations {_short(stepper.observation_space)}, actions {_short(stepper.action_space)}"
    if able:
        yield fine("spaces", f"{spaces}: {', '.join(able)} can learn from it.")
    else:
        yield broken("spaces", f"{spaces}: no algorithm can learn from it. {' '.join(dict.fromkeys(reasons.values()))}")


def _statistics(environment: Any, stepper: Stepper) -> Iterator[Finding]:
    if wrapper := statistics.running(environment, stepper):
        yield broken(
            "statistics",
            f"It has a {wrapper}, whose running statistics are those of one environment: training refuses it, since "
            "evaluations would have others. Take it out, and give --normalize-observations.",
        )


def _short(space: object) -> str:
    return re.sub(r"(\[[^\]]{60})[^\]]*\]", r"\1 ...]", str(space))
