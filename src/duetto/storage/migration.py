"""Translation of what earlier versions wrote into `config.yaml` to this version's form.

    format 1   no `format` in the file: 0.1 before its networks were composed
    format 2   `network` is the kind of hidden layers; a user's own network stands under its name, as `q_network`

Parameters in checkpoints move in `learners.parameters.matched`.
"""

from __future__ import annotations

from typing import Any

from duetto.errors import UsageError

FORMAT = 2
_OWN_NETWORK = {"ppo": "agent_network", "dqn": "q_network", "dqfd": "q_network", "r2d2": "q_network"}
_OWN_NETWORK |= {"r2d3": "q_network", "bc": "q_network"}
# Options of Q-learning that behaviour cloning once had, and never read.
_NEVER_READ = {
    "bc": {
        "discount",
        "n_step",
        "ignore_termination",
        "tau",
        "target_period",
        "double",
        "huber_delta",
        "rescale_values",
        "rescale_epsilon",
    }
}


def migrated(values: dict[str, Any]) -> dict[str, Any]:
    """The contents of a `config.yaml` in this version's form, without the number of the format.

    Raises:
        UsageError: A newer version wrote it.
    """
    values = dict(values)
    written = values.pop("format", 1)
    if not isinstance(written, int) or written > FORMAT:
        raise UsageError(f"it has format {written!r}, and this Duetto reads {FORMAT}. Install a newer Duetto.")
    if written < 2:
        values["algorithm"] = _with_own_networks(dict(values["algorithm"]))
    return values


def _with_own_networks(fields: dict[str, Any]) -> dict[str, Any]:
    name = fields["name"]
    fields = {key: value for key, value in fields.items() if key not in _NEVER_READ.get(name, ())}
    if name in _OWN_NETWORK and "network" in fields and not isinstance(fields["network"], str):
        fields[_OWN_NETWORK[name]] = fields.pop("network")
    return fields
