"""Environment checker: `duetto check` and `duetto.check`.

runner  makes the environment in separate processes, so that a crash or a hang becomes a finding
rules   plays random actions, judges what they lead to, runs Gymnasium's checker, compares steps after a resume
"""

from duetto.environments.check.rules import Finding, Level
from duetto.environments.check.runner import STEPS, TIMEOUT, check

__all__ = ["STEPS", "TIMEOUT", "Finding", "Level", "check"]
