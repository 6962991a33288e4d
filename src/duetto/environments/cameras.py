"""Cameras for videos."""

from __future__ import annotations

import gymnasium


def follow(env: gymnasium.Env) -> None:
    """Let the camera of a MuJoCo environment follow the body, where the model has a camera for that.

    Gymnasium's default is a camera that stands still: a cheetah that has learned to run is out of sight in a second. A
    camera that was chosen (`camera_id`, `camera_name`) stays.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or getattr(renderer, "camera_id", None) not in (None, -1):
        return
    cameras = [renderer.model.cam(number).name for number in range(renderer.model.ncam)]
    if "track" in cameras:
        renderer.camera_id = cameras.index("track")
