"""Push runs to the Hugging Face Hub with an evaluation, and pull runs from it.

    run --> upload.py: config, checkpoint, logs, without private data; model_card.py: README.md --> client.py
    client.py --> download.py: check names, sizes and the checkpoint's checksums --> folder --> run

`file_rules.py` defines which files are sent or fetched, and shortens paths. Only `client.py` contacts the server.
SECURITY.md lists the guarantees for a stranger's run.
"""

from duetto.tools.hub.download import Pulled, fetch, pull
from duetto.tools.hub.upload import Pushed, push

__all__ = ["Pulled", "Pushed", "fetch", "pull", "push"]
