"""Colours of blocks: the Okabe-Ito palette, told apart with every common colour blindness."""

from collections.abc import Iterable

# Blocks of the published study keep their colour on every page; others get the next free one.
_FIXED = {
    "kda": "#0072b2",
    "full_attn": "#d55e00",
    "attention": "#d55e00",
    "moe": "#009e73",
    "attn_residual": "#cc79a7",
    "dense_mlp": "#56b4e9",
    "mlp": "#009e73",
    "norm": "#f0e442",
    "other": "#8c8c8c",
    "outside": "#8c8c8c",
    "collective": "#e69f00",
    "collectives": "#e69f00",
}
_FREE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#8c8c8c")


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for every name, in order; more than eight unknown names share colours."""
    ordered = list(dict.fromkeys(names))
    chosen = {name: _FIXED[name] for name in ordered if name in _FIXED}
    free = [colour for colour in _FREE if colour not in chosen.values()] or list(_FREE)
    unknown = [name for name in ordered if name not in chosen]
    chosen |= {name: free[n % len(free)] for n, name in enumerate(unknown)}
    return {name: chosen[name] for name in ordered}


def text_on(colour: str) -> str:
    """ "black" or "white", whichever has the higher contrast (WCAG) on ``colour``, #rrggbb."""
    luminance = _luminance(colour)
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    # The sRGB transfer function, and the weights of its primaries (WCAG 2, relative luminance).
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
