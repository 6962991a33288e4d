"""Environment checker: `duetto check` and `duetto.check`.

runner       starts a child process, so that a crash or a hang of the environment becomes a finding
findings     a finding, and how the child process reports it
rollout      plays random actions
rules        judges spaces, observations, rewards, episodes, masks, speed and rendering; runs Gymnasium's checker
determinism  compares steps of one seed, and steps after a resume
"""

from duetto.environments.check.findings import Finding, Level
from duetto.environments.check.runner import STEPS, TIMEOUT, check

__all__ = ["STEPS", "TIMEOUT", "Finding", "Level", "check"]
