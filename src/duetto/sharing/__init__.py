"""Runs on the Hugging Face Hub: push one with an evaluation of it, and pull a stranger's.

    run --> packing: config, checkpoint, logs, without the user's places --+
    run --> an evaluation, and a video --> card: README.md, results.json --+--> folder --> hub
    hub --> what it lists --> names, sizes and checksums, all checked --> folder --> a run

Only `hub.py` speaks to the server. What comes from there is a stranger's: SECURITY.md says what is promised.
"""

from duetto.sharing.pulling import Pulled, fetch, pull
from duetto.sharing.pushing import Pushed, push

__all__ = ["Pulled", "Pushed", "fetch", "pull", "push"]
