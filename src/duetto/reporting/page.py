"""One page with all that it needs inside: style, script, numbers, videos. It fetches nothing, and is not allowed to.

The page's own policy allows its two scripts, by their checksums, and no address but data: a script that a stranger's
folder might smuggle in would not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from duetto.errors import UsageError
from duetto.extras import install
from duetto.reporting.markup import Html, data, joined, tag


def plotly() -> str:
    """The JavaScript library that draws, from plotly's own package. Raises UsageError if that is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError(f"Reports need plotly. Install: {install('report')}") from error
    return get_plotlyjs()


def page(title: str, about: str, sections: Sequence[tuple[str, str, Html]], charts: list[Any], footer: str) -> str:
    """Make the whole page. `sections` are an id, a heading (without one it is not in the menu) and the content."""
    scripts = [_script(plotly()), _script(_file("page.js"))]
    head = joined(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(_file("page.css"))),
    )
    menu = tag("nav", *(tag("a", heading, href=f"#{name}") for name, heading, _ in sections if heading))
    body = joined(
        tag("header", tag("h1", title), tag("p", about, class_="quiet"), menu),
        tag("noscript", tag("p", "Curves need JavaScript; the tables do not.")),
        *(tag("section", tag("h2", heading) if heading else "", inside, id=name) for name, heading, inside in sections),
        tag("footer", tag("p", footer, class_="quiet")),
        tag("script", data(charts), type="application/json", id="charts"),
        *(tag("script", Html(script)) for script in scripts),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _policy(scripts: Sequence[str]) -> str:
    sums = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return "; ".join(
        [
            "default-src 'none'",
            "script-src " + " ".join(f"'sha256-{one}'" for one in sums),
            "style-src 'unsafe-inline'",  # the script that draws makes styles
            "img-src data: blob:",  # a picture that the reader saves
            "media-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _script(code: str) -> str:
    """A script's code as it can be in a page: with the line ends that its checksum is of, and no end of the element."""
    return code.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _file(name: str) -> str:
    return (files("duetto.reporting") / name).read_text("utf-8")
