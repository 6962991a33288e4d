"""Runs on the Hugging Face Hub: push a run with an evaluation, and pull a stranger's.

    run --> upload.py: config, checkpoint, logs, without private data; model_card.py: README.md --> client.py
    client.py --> download.py: names, sizes and checksums are checked --> folder --> run

`file_rules.py` says which files and which parts of paths are sent or fetched. Only `client.py` contacts the server.
SECURITY.md lists the promises for a stranger's run.
"""

from duetto.tools.hub.download import Pulled, fetch, pull
from duetto.tools.hub.upload import Pushed, push

__all__ = ["Pulled", "Pushed", "fetch", "pull", "push"]
