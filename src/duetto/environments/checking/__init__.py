"""Find out by trying whether an environment keeps Gymnasium's contract and Duetto's, and say so in sentences.

`apart` gives the environment a process of its own, so that one that hangs, prints or ends its process is survived;
`inside` is what that process does: it plays random actions and judges what it saw, part by part.
"""

from duetto.environments.checking.apart import check
from duetto.environments.checking.findings import Finding, Level

__all__ = ["Finding", "Level", "check"]
