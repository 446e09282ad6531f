"""The scalar unit's operations as Python expressions over registers that may be unknown.

Only what steers control flow and DMAs is ever executed; everything else, and every operation that
is not in the table, is UNKNOWN, which spreads through arithmetic and is never guessed.
"""

from collections.abc import Callable, Sequence
from typing import Any


class _Unknown:
    """A register whose value the compiler's text does not determine."""

    def _spread(self, *_: Any) -> "_Unknown":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _spread
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _spread
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _spread
    __lt__ = __le__ = __gt__ = __ge__ = _spread
    __eq__ = __ne__ = _spread  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("the truth of an unknown register was asked for")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def select(predicate: Any, if_true: Any, if_false: Any) -> Any:
    """if_true or if_false; UNKNOWN where the predicate is."""
    if predicate is UNKNOWN:
        return UNKNOWN
    return if_true if predicate else if_false


def either(a: Any, b: Any) -> Any:
    """a or b, also where only one of them is known and decides it."""
    if a is True or b is True:
        return True
    return UNKNOWN if a is UNKNOWN or b is UNKNOWN else False


def both(a: Any, b: Any) -> Any:
    """a and b, also where only one of them is known and decides it."""
    if a is False or b is False:
        return False
    return UNKNOWN if a is UNKNOWN or b is UNKNOWN else True


def negate(a: Any) -> Any:
    """not a."""
    return UNKNOWN if a is UNKNOWN else not a


def lookup(table: Sequence[int] | None, index: Any) -> Any:
    """table[index]; UNKNOWN for an unknown table or index, or one outside the table."""
    if table is None or index is UNKNOWN or not 0 <= index < len(table):
        return UNKNOWN
    return table[index]


def _signed(expression: str) -> str:
    """The 32-bit two's-complement value of an expression."""
    return f"((({expression}) + 0x80000000 & 0xFFFFFFFF) - 0x80000000)"


def _binary(symbol: str) -> Callable[[Sequence[str]], str]:
    return lambda operands: _signed(f"{operands[0]} {symbol} {operands[1]}")


def _comparison(symbol: str, unsigned: bool) -> Callable[[Sequence[str]], str]:
    mask = " & 0xFFFFFFFF" if unsigned else ""
    return lambda operands: f"(({operands[0]}{mask}) {symbol} ({operands[1]}{mask}))"


EXPRESSIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "sadd.s32": _binary("+"),
    "ssub.s32": _binary("-"),
    "smul.u32": _binary("*"),
    "smul.s32": _binary("*"),
    "sand.u32": _binary("&"),
    "sor.u32": _binary("|"),
    "sxor.u32": _binary("^"),
    "sshll.u32": _binary("<<"),
    "sshra.s32": _binary(">>"),
    "sshrl.u32": lambda operands: _signed(f"({operands[0]} & 0xFFFFFFFF) >> {operands[1]}"),
    "scalar_select": lambda operands: "select({}, {}, {})".format(*operands),
    "por": lambda operands: f"either({operands[0]}, {operands[1]})",
    "pand": lambda operands: f"both({operands[0]}, {operands[1]})",
    "pnand": lambda operands: f"negate(both({operands[0]}, {operands[1]}))",
    "pnor": lambda operands: f"negate(either({operands[0]}, {operands[1]}))",
    "pneg": lambda operands: f"negate({operands[0]})",
    "pmov": lambda operands: operands[0],
    **{
        f"scmp.{relation}.{kind}32.totalorder": _comparison(symbol, kind == "u")
        for relation, symbol in (
            ("eq", "=="),
            ("ne", "!="),
            ("lt", "<"),
            ("le", "<="),
            ("gt", ">"),
            ("ge", ">="),
        )
        for kind in ("s", "u")
    },
}
