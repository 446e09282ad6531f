"""Names from a trace made fit to be shown: they come from outside and may hold anything."""

import html
import unicodedata

# Control, format (bidi overrides, zero width), surrogate, private use, unassigned, line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
MAX_SHOWN = 200


class RenderError(ValueError):
    """These compositions cannot be rendered so; the message says what is missing."""


def visible(name: str, limit: int = MAX_SHOWN) -> str:
    """``name`` with every character that one cannot see written as an escape, e.g. \\u202e.

    A right-to-left override would reorder the rest of a line, a control character end it. Longer
    names are cut in the middle, because kernel names differ at both ends.
    """
    if len(name) > limit:
        head = (limit - 3) * 2 // 3
        name = f"{name[:head]}...{name[head + 3 - limit :]}"
    return "".join(_shown(character) for character in name)


def escaped(name: str, limit: int = MAX_SHOWN) -> str:
    """``visible``, and safe in HTML text and quoted attributes."""
    return html.escape(visible(name, limit), quote=True)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
