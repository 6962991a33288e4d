"""Check whether an environment comes back from a checkpoint, can be filmed, and passes Gymnasium's own checker."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import env_checker

from duetto.environments import state
from duetto.environments.checking.findings import Finding, costs, fine
from duetto.environments.faults import summary
from duetto.environments.rehearsal import LEAST, MOST, Rehearsal
from duetto.environments.stepping import Stepper
from duetto.errors import UsageError

STEPS, ENOUGH = 30, 10.0


def saving(
    stepper: Stepper, environment: Any, patience: float, alive: Callable[[], None], **options: Any
) -> Iterator[Finding]:
    """Save the state in the middle of a later episode, load it in another process, and compare; see `rehearsal`."""
    notices: list[str] = []
    rehearsal = Rehearsal(stepper, notices, environment, **options)
    try:
        stepper.reset(3)
        draw = np.random.default_rng(3)
        _step(stepper, draw, MOST, alive, until_ended=True)
        _step(stepper, draw, STEPS, alive)
        saved = stepper.state_dict()
        rehearsal.begin(saved)
        if saved["environments"] is not None and rehearsal.exact is None and not rehearsal.is_apart(saved):
            notices.append(
                f"No episode ended within {ENOUGH:.0f} seconds, so whether it comes back exactly was not tried; a run "
                "finds out."
            )
        elif saved["environments"] is not None and rehearsal.exact is None:
            _step(stepper, draw, LEAST, alive)
            _step(stepper, draw, MOST - LEAST, alive, until_ended=True)
            rehearsal.look(patience)
    finally:
        rehearsal.close()
    if not notices:
        yield fine("saving", "Its state is saved and comes back exactly: a run that is killed goes on bit for bit.")
        return
    blame = [one for one in map(state.obstacle, stepper.environments) if one]
    because = f" ({blame[0]})" if blame and saved["environments"] is None else ""
    own = " With state_dict() and load_state_dict() it can save itself." if because else ""
    yield costs("saving", " ".join(notices) + because + own)


def _step(
    stepper: Stepper, draw: np.random.Generator, steps: int, alive: Callable[[], None], until_ended: bool = False
) -> None:
    """Take `steps` random steps; fewer if they take too long or, with `until_ended`, once an episode has ended."""
    began = time.perf_counter()
    for _ in range(steps):
        if time.perf_counter() - began > ENOUGH:
            return
        alive()
        _, episodes = stepper.step(stepper.sample_actions(draw))
        if episodes and until_ended:
            return


def video(make: Callable[..., Stepper], metadata: dict[str, Any]) -> Iterator[Finding]:
    """Check that the environment renders a frame, as `duetto video` needs it."""
    without = "duetto video and --video-every cannot show it"
    if "rgb_array" not in (metadata.get("render_modes") or ()):
        yield costs("video", f'Its metadata has no render mode "rgb_array": {without}. Add it, and render() for it.')
        return
    stepper = None
    try:
        stepper = make(render_mode="rgb_array")
        stepper.reset(0)
        frame = stepper.render()
    except UsageError as error:
        yield costs("video", f"{without[0].upper()}{without[1:]}. {error}")
        return
    finally:
        if stepper is not None:
            stepper.close()
    rate = metadata.get("render_fps")
    more = "" if rate else ' metadata has no "render_fps", so videos run at 30 frames a second'
    yield fine("video", f"It can be filmed: frames of {frame.shape[1]} × {frame.shape[0]}.{more}{'.' if more else ''}")


def gymnasiums(env: gymnasium.Env) -> Iterator[Finding]:
    """Report what Gymnasium's checker objects to; its warnings, which are about taste, are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env_checker.check_env(env, skip_render_check=True, skip_close_check=True)
        except Exception as error:  # assertions, and whatever the environment raises meanwhile
            yield costs("gymnasium", f"Gymnasium's own checker objects. {summary(error)}.")
            return
    yield fine("gymnasium", "Gymnasium's own checker objects to nothing.")
