"""Repair of broken text by ftfy: mojibake, control characters, line ends, curly quotes, NFC.

ftfy costs a second for some 2 MB. Most text is plain ASCII in which it would find nothing to do;
that is told by a look at the text, which costs next to nothing.
"""

from __future__ import annotations

import re

import ftfy

# What ftfy changes in ASCII: control characters (but \\t, \\n and \\f), \\r, and HTML entities.
# Escape sequences of terminals begin with a control character.
_FTFY_CHANGES = re.compile(r"[\x00-\x08\x0b\x0d-\x1f\x7f]|&#?[0-9A-Za-z]{1,24};")


def clean(text: str) -> str:
    """Return exactly `ftfy.fix_text(text)`; the result can always be encoded as UTF-8.

    Source: Robyn Speer 2019, ftfy, zenodo 10.5281/zenodo.2591652.
    """
    if text.isascii() and not _FTFY_CHANGES.search(text):
        return text
    return str(ftfy.fix_text(text))
