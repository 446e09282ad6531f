"""How many query-key pairs a mask leaves, and how many keys are visited: exact integers.

Query i (from 0) of ``new`` stands at position p = prefix + i and sees key j <= p. All counts are of
one sequence and one head. tests/roofline counts each mask element by element.
"""

from collections.abc import Sequence

from k3bench.roofline.errors import RooflineError


def causal_pairs(new: int, prefix: int = 0) -> int:
    """C P + C (C + 1) / 2."""
    return new * prefix + new * (new + 1) // 2


def window_pairs(new: int, window: int, prefix: int = 0, sinks: int = 0) -> int:
    """Pairs where a query sees its last ``window`` keys, itself included, and the first ``sinks``.

    A sink inside the window counts once.
    """
    if window < 1 or sinks < 0:
        raise RooflineError(f"window {window}, sinks {sinks}: give 1 or more, 0 or more")
    # The first window + sinks positions see everything; later ones that many keys.
    whole = min(new, max(0, window + sinks - prefix))
    return causal_pairs(whole, prefix) + (new - whole) * (window + sinks)


def window_keys(new: int, window: int, prefix: int = 0, sinks: int = 0) -> int:
    """Distinct keys that any of the queries sees."""
    context = prefix + new
    first = max(0, prefix - window + 1)
    return context - first + min(sinks, first)


def block_sparse_pairs(
    new: int, block: int, visible: Sequence[Sequence[bool]], prefix: int = 0
) -> int:
    """Causal pairs inside the visible blocks.

    Args:
        new: queries.
        block: tokens along either side of a block; positions are cut from 0.
        visible: by query block and key block, over the whole context; blocks above the diagonal
            are never counted.
        prefix: cached keys before the queries.
    """
    context = prefix + new
    rows = -(-context // block)
    if len(visible) != rows or any(len(row) != rows for row in visible):
        raise RooflineError(f"visible is not {rows} x {rows}: one entry a block of {block} tokens")
    total = 0
    for query_block in range(prefix // block, rows):
        start = max(query_block * block, prefix)
        queries = min((query_block + 1) * block, context) - start
        for key_block in range(query_block + 1):
            if not visible[query_block][key_block]:
                continue
            if key_block < query_block:
                total += queries * block
            else:
                total += causal_pairs(queries, start - query_block * block)
    return total


def top_k_pairs(new: int, k: int, prefix: int = 0) -> int:
    """Pairs where a query attends its best ``k`` visible keys, or all where there are fewer.

    The count is that of a window of ``k``: the same number of keys, others of them.
    """
    return window_pairs(new, k, prefix)
