"""For the documentation's site: leaves out what pages say to tests and to readers of a checkout alone, and no text.

A fence may say why its code does not run (`python notest: needs a server`), a comment may prepare an example, and a
link may lead to a file of the checkout that is no page (`../../deploy/alerts.yml`): of that its words stay.
"""

import re

from markdown import Extension, Markdown  # type: ignore[import-untyped]
from markdown.preprocessors import Preprocessor  # type: ignore[import-untyped]

_NOTE = re.compile(r"^( *```[a-z]+) notest: .*$")
_OUTWARD = re.compile(r"\[([^\]]+)\]\(\.\./\.\./[^)\s]+\)")


class _Notes(Preprocessor):  # type: ignore[misc]
    """Fences with their language alone, no hidden examples, no links out of the site."""

    def run(self, lines: list[str]) -> list[str]:
        kept: list[str] = []
        hidden = False
        for line in lines:
            hidden = hidden or line == "<!-- python"
            if not hidden:
                kept.append(_OUTWARD.sub(r"\1", _NOTE.sub(r"\1", line)))
            hidden = hidden and line != "-->"
        return kept


class _SiteNotes(Extension):  # type: ignore[misc]
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name is Markdown's
        # After white space is made uniform (30), before fences are read (25).
        md.preprocessors.register(_Notes(md), "site-notes", 28)


def makeExtension() -> Extension:  # noqa: N802 - the name is Markdown's
    """What Markdown asks an extension's module for."""
    return _SiteNotes()
