"""An example of the pages that fails shows what failed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = """
```python
try:
    int("x")
except ValueError as error:
    raise LookupError("of this page") from error
```
"""


def test_an_error_with_a_cause_is_shown_in_the_page(tmp_path: Path):
    (tmp_path / "index.md").write_text(PAGE, "utf-8")
    shutil.copy(DOCS / "conftest.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert "INTERNALERROR" not in said
    assert said.index('>       int("x")\nE       ValueError') < said.index("E       LookupError: of this page")
    assert "sybil" not in said
