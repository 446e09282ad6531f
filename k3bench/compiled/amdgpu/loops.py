"""Finds a kernel's loops and, in each, the path of one full iteration.

A full iteration is one in which no mask is empty: where the code can skip loads, the path that
loads most is taken, and among equals the longest. That is the tile in the middle of a long context,
which is where the time goes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from k3bench.compiled.amdgpu.addresses import constants_before
from k3bench.compiled.amdgpu.isa import Block, Instruction, Program
from k3bench.compiled.amdgpu.memory_ops import memory_operation
from k3bench.compiled.errors import CompiledFormatError


@dataclass(frozen=True)
class Loop:
    """One natural loop.

    Attributes:
        header: name of its first block.
        blocks: names of all its blocks, those of inner loops included.
        depth: 1 for an outermost loop.
        innermost: whether it holds no other loop.
        iteration: the instructions of one full iteration, from the header to the jump back; inner
            loops count once.
        constants: registers that hold a literal when it is entered.
    """

    header: str
    blocks: frozenset[str]
    depth: int
    innermost: bool
    iteration: tuple[Instruction, ...]
    constants: Mapping[str, int]


def find_loops(program: Program) -> tuple[Loop, ...]:
    """Every loop, in the order of the text; CompiledFormatError for a jump into a loop's middle."""
    order = _reverse_postorder(program.blocks, program.entry)
    dominators = _dominators(program.blocks, order)
    position = {name: number for number, name in enumerate(order)}
    bodies: dict[str, set[str]] = {}
    back_edges: set[tuple[str, str]] = set()
    predecessors = _predecessors(program.blocks)
    for name in order:
        for successor in program.blocks[name].successors:
            if position[successor] > position[name]:
                continue
            if successor not in dominators[name]:
                raise CompiledFormatError(
                    f"{program.name}: a jump to {successor} enters a loop in its middle: the loops "
                    "of this kernel cannot be told apart"
                )
            back_edges.add((name, successor))
            body = bodies.setdefault(successor, {successor})
            _add_body(body, name, predecessors)
    loops = []
    for header, body in sorted(bodies.items(), key=lambda entry: position[entry[0]]):
        latches = {tail for tail, head in back_edges if head == header}
        path = heaviest_path(program.blocks, order, back_edges, header, latches, frozenset(body))
        loops.append(
            Loop(
                header=header,
                blocks=frozenset(body),
                depth=sum(header in other for other in bodies.values()),
                innermost=all(other == header or other not in body for other in bodies),
                iteration=instructions_of(program.blocks, path),
                constants=constants_before(_instructions_before(program, header)),
            )
        )
    return tuple(loops)


def _instructions_before(program: Program, header: str) -> Iterator[Instruction]:
    for name, block in program.blocks.items():
        if name == header:
            return
        yield from block.instructions


def whole_pass(program: Program) -> tuple[Instruction, ...]:
    """The instructions of one full pass from the entry to an end, every loop taken once."""
    order = _reverse_postorder(program.blocks, program.entry)
    position = {name: number for number, name in enumerate(order)}
    back_edges = {
        (name, successor)
        for name in order
        for successor in program.blocks[name].successors
        if position[successor] <= position[name]
    }
    ends = {name for name in order if not program.blocks[name].successors}
    everything = frozenset(order)
    path = heaviest_path(program.blocks, order, back_edges, program.entry, ends, everything)
    return instructions_of(program.blocks, path)


def heaviest_path(
    blocks: Mapping[str, Block],
    order: list[str],
    back_edges: set[tuple[str, str]],
    start: str,
    ends: set[str],
    within: frozenset[str],
) -> list[str]:
    """Names of blocks from ``start`` to one of ``ends`` with most bytes loaded, then most code."""
    best: dict[str, tuple[tuple[int, int], str | None]] = {start: (_weight(blocks[start]), None)}
    for name in order:
        if name not in best or name not in within:
            continue
        (loaded, length), _ = best[name]
        for successor in blocks[name].successors:
            if successor not in within or (name, successor) in back_edges:
                continue
            more_loaded, more_length = _weight(blocks[successor])
            candidate = (loaded + more_loaded, length + more_length)
            if successor not in best or candidate > best[successor][0]:
                best[successor] = (candidate, name)
    reached = [name for name in order if name in ends and name in best]
    if not reached:
        raise CompiledFormatError(f"no path from {start} to the end of its loop or kernel")
    path: list[str] = []
    current: str | None = max(reached, key=lambda name: best[name][0])
    while current is not None:
        path.append(current)
        current = best[current][1]
    return path[::-1]


def instructions_of(blocks: Mapping[str, Block], path: list[str]) -> tuple[Instruction, ...]:
    """The instructions along a path of blocks."""
    return tuple(instruction for name in path for instruction in blocks[name].instructions)


def _weight(block: Block) -> tuple[int, int]:
    loaded = 0
    for instruction in block.instructions:
        operation = memory_operation(instruction)
        if operation is not None and operation.is_load and operation.space == "global":
            loaded += operation.lane_bytes
    return loaded, len(block.instructions)


def _reverse_postorder(blocks: Mapping[str, Block], entry: str) -> list[str]:
    order: list[str] = []
    seen = {entry}
    stack = [(entry, iter(blocks[entry].successors))]
    while stack:
        name, remaining = stack[-1]
        for successor in remaining:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(blocks[successor].successors)))
                break
        else:
            stack.pop()
            order.append(name)
    return order[::-1]


def _predecessors(blocks: Mapping[str, Block]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in blocks}
    for name, block in blocks.items():
        for successor in block.successors:
            found[successor].append(name)
    return found


def _dominators(blocks: Mapping[str, Block], order: list[str]) -> dict[str, set[str]]:
    predecessors = _predecessors(blocks)
    everything = set(order)
    found = dict.fromkeys(order, everything)
    found[order[0]] = {order[0]}
    changed = True
    while changed:
        changed = False
        for name in order[1:]:
            fresh = set.intersection(*(found[before] for before in predecessors[name])) | {name}
            if fresh != found[name]:
                found[name] = fresh
                changed = True
    return found


def _add_body(body: set[str], latch: str, predecessors: Mapping[str, list[str]]) -> None:
    waiting = [latch]
    while waiting:
        name = waiting.pop()
        if name not in body:
            body.add(name)
            waiting.extend(predecessors[name])
