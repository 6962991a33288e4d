"""Sphinx: `sphinx-build -n -W docs docs/_build`. The built site needs no network."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS / "figures"), str(DOCS.parent / "src")]

project = "Duetto"
author = "the authors of Duetto"
copyright = "the authors of Duetto, MIT license"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "katex",
    "drawn",
    "generated",
    "sentences",
]
exclude_patterns = ["_build", "_ext", "_static", "_templates", "figures"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!duetto).*"),  # other packages cannot be looked up without a network
    (
        "py:class",
        r"duetto\.(algorithms|environments|learners|storage|tools\.plot|trackers|training)\..*",
    ),  # internal classes
]
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"
add_module_names = False
autodoc_typehints = "signature"
autodoc_preserve_defaults = True  # as in the source
autodoc_member_order = "bysource"
smartquotes_action = "qe"  # two dashes mark an option
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Duetto"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["katex/katex.min.css", "site.css"]
html_js_files = ["katex/katex.min.js", "maths.js"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
