"""The state of pybullet-envs-gymnasium's environments: Bullet's own snapshots, and the robot's attributes in Python.

Bullet restores a snapshot bit for bit into another physics client with the same bodies, contacts included; the tests
compare 1200 steps. The environment's own snapshot, which each reset starts from, need not be saved: it is of bodies
before their first step, and the reset then sets what was random in them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from duetto.environments import quiet, values

# Handles of this process's physics client and its snapshots.
_HANDLES = {"physicsClientId", "ownsPhysicsClient", "stateId"}
# Continued differently when measured over 1200 steps: they move bodies that no snapshot covers.
_INEXACT = {"PusherBulletEnv", "ThrowerBulletEnv", "HumanoidFlagrunHarderBulletEnv"}


def is_bullet(env: gymnasium.Env) -> bool:
    """Whether this is one of pybullet-envs-gymnasium's own environments."""
    return type(env).__module__.startswith("pybullet_envs_gymnasium.")


def save(env: Any) -> dict[str, Any]:
    """Return the state of an environment that has been reset, as arrays and JSON values.

    Raises:
        NotSimpleError: It is one of those that did not continue exactly when measured.
    """
    if type(env).__name__ in _INEXACT:
        raise values.NotSimpleError(f"{type(env).__name__} does not continue exactly")
    return {"env": _attributes(env), "robot": _attributes(env.robot), "world": _snapshot(env._p)}


def load(env: Any, saved: dict[str, Any]) -> None:
    """Put the state into an environment that has been reset once, so that its bodies exist."""
    _restore(env._p, saved["world"])
    for target, attributes in ((env, saved["env"]), (env.robot, saved["robot"])):
        vars(target).update({name: values.decode(value) for name, value in attributes.items()})
    env.robot.np_random = env.np_random  # one generator with two names


class QuietStart(gymnasium.Wrapper):
    """A wrapper that hides what Bullet's C code prints when the first reset connects a physics client.

    That reset builds the world, the later ones restore it, and their episodes differ. Here the first is one of these
    too, so that an episode depends on its seed alone.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._connected = False

    def reset(self, **kwargs: Any) -> Any:
        """See gymnasium.Env."""
        if self._connected:
            return self.env.reset(**kwargs)
        self._connected = True
        with quiet.output():
            self.env.reset(**kwargs)
        return self.env.reset(**kwargs)


def _attributes(owner: Any) -> dict[str, Any]:
    return dict(_simple(owner))


def _simple(owner: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        # Body parts, joints and the scene hold only handles; what they stand for is in the snapshot.
        if name in _HANDLES or (isinstance(value, np.random.Generator) and name != "_np_random"):
            continue
        try:
            yield name, values.encode(value, values.Seen())
        except values.NotSimpleError:
            continue


def _snapshot(client: Any) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.bullet"
        client.saveBullet(str(path))
        return np.frombuffer(path.read_bytes(), np.uint8).copy()


def _restore(client: Any, snapshot: np.ndarray) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "world.bullet"
        path.write_bytes(snapshot.tobytes())
        client.restoreState(fileName=str(path))
