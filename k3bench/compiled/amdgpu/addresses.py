"""Follows register values through a loop: which loads read the same bytes, which feed addresses.

The low 32 bits of every integer are kept as a linear form (constant plus multiples of unknowns,
modulo 2^32), so that two addresses computed in different ways, or one iteration apart, still
compare equal. What is not linear becomes an unknown named by its operation and operands. Memory is
taken as read-only while the loop runs, which is true of a kernel's inputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from k3bench.compiled.amdgpu.isa import Instruction, registers
from k3bench.compiled.amdgpu.memory_ops import MemoryOperation, memory_operation

_MASK = (1 << 32) - 1
_GRANULE = 4
# Bytes of a cache line. Lines are counted from the unknown part of an address, as if that were
# aligned: a stream then enters a new one for every 128 bytes, wherever it begins.
_LINE = 128
# Register-writing instructions whose second operand is a result too (carry or comparison).
_TWO_RESULTS = (
    "v_add_co_",
    "v_sub_co_",
    "v_addc_co_",
    "v_subb_co_",
    "v_div_scale_",
    "v_mad_u64_u32",
)
_SWAPS = ("v_swap_", "v_permlane32_swap", "v_permlane16_swap")
_READS_RESULT = ("v_fmac_", "v_mac_", "v_dot2c_", "v_pk_fmac", "s_addk_", "s_mulk_", "s_cmov")
_LITERAL_MOVES = ("v_mov_b32", "s_mov_b32", "v_bfrev_b32", "s_brev_b32")
_NO_RESULT = ("s_waitcnt", "s_barrier", "s_nop", "s_branch", "s_cbranch", "s_endpgm", "s_setprio",
              "s_sleep", "s_sched", "s_setreg", "s_trap", "buffer_wbl2", "buffer_inv")  # fmt: skip


@dataclass(frozen=True)
class Form:
    """``constant + sum of coefficient x unknown``, modulo 2^32; terms sorted by unknown."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()

    def plus(self, other: "Form", factor: int = 1) -> "Form":
        """This form plus ``factor`` times another."""
        terms = dict(self.terms)
        for unknown, coefficient in other.terms:
            terms[unknown] = (terms.get(unknown, 0) + factor * coefficient) & _MASK
        kept = tuple(sorted((u, c) for u, c in terms.items() if c))
        return Form((self.constant + factor * other.constant) & _MASK, kept)

    def times(self, factor: int) -> "Form":
        """This form times a constant."""
        return Form(0).plus(self, factor)


_OUT_OF_BOUNDS = Form(1 << 31)


@dataclass(frozen=True)
class Access:
    """One global or scratch load or store as executed.

    Attributes:
        position: of its instruction in the iteration.
        operation: what it moves.
        repeated: its bytes were all loaded before, in this iteration or an earlier one.
        same_line: the cache line in which they begin was read from before, by the same lanes.
    """

    position: int
    operation: MemoryOperation
    repeated: bool
    same_line: bool


@dataclass
class Values:
    """Register values during a walk; ``feeding`` collects loads that an address depended on."""

    forms: dict[str, Form] = field(default_factory=dict)
    feeding: set[int] = field(default_factory=set)
    _unknowns: dict[object, int] = field(default_factory=dict)
    _origins: dict[int, frozenset[int]] = field(default_factory=dict)
    _loaded: dict[tuple[tuple[int, int], ...], set[int]] = field(default_factory=dict)
    _lines: dict[tuple[tuple[int, int], ...], set[int]] = field(default_factory=dict)
    _fresh: int = 0

    def walk(self, instructions: Sequence[Instruction]) -> list[Access]:
        """Executes one iteration; its accesses in order."""
        accesses = []
        for position, instruction in enumerate(instructions):
            operation = memory_operation(instruction)
            if operation is not None:
                access = self._access(position, operation)
                if access is not None:
                    accesses.append(access)
            else:
                self._compute(instruction)
        return accesses

    def _access(self, position: int, operation: MemoryOperation) -> Access | None:
        if operation.space == "lds":
            self._forget(operation.result)
            return None
        address, origins = self._address(operation)
        if operation.space == "scratch":
            self._forget(operation.result)
            return Access(position, operation, repeated=True, same_line=True)
        self.feeding |= origins
        if not operation.is_load:
            return Access(position, operation, repeated=False, same_line=False)
        first = address.constant // _GRANULE
        granules = range(first, first + max(1, operation.lane_bytes // _GRANULE))
        seen = self._loaded.setdefault(address.terms, set())
        repeated = all(granule in seen for granule in granules)
        seen.update(granules)
        lines = self._lines.setdefault(address.terms, set())
        line = address.constant // _LINE
        same_line = line in lines
        lines.add(line)
        if operation.result is not None:
            for number, register in enumerate(registers(operation.result)):
                what = ("load", address, number)
                self._set(register, self._unknown(what, origins | {position}))
        return Access(position, operation, repeated, same_line)

    def _address(self, operation: MemoryOperation) -> tuple[Form, frozenset[int]]:
        """Sum of the low words of everything that the address is made of."""
        total = Form(0)
        for piece in operation.address:
            if piece.startswith("offset:"):
                total = total.plus(Form(int(piece.removeprefix("offset:"), 0) & _MASK))
            elif piece not in ("off", "offen", "idxen", "sc0", "sc1", "nt", "glc", "slc", "dlc"):
                total = total.plus(self._value(piece))
        return total, self._origins_of(total)

    def _compute(self, instruction: Instruction) -> None:
        name, operands = instruction.mnemonic, instruction.operands
        if name.startswith(_NO_RESULT) or not operands:
            return
        if name.startswith(("s_cmp", "s_bitcmp")):
            self._set("scc", self._opaque(name, operands, ()))
            return
        results = 2 if name.startswith((*_TWO_RESULTS, *_SWAPS)) else 1
        sources = operands if name.startswith(_SWAPS) else operands[results:]
        if name.startswith(_READS_RESULT):
            sources = (operands[0], *sources)
        low = self._linear(name, sources)
        flags = ("scc",) if name.startswith(("s_addc", "s_subb", "s_cselect", "s_cmov")) else ()
        opaque = self._opaque(name, sources, flags)
        number = 0
        for operand in operands[:results]:
            for register in registers(operand):
                form = opaque if number == 0 else self._part(opaque, number)
                self._set(register, low if low is not None and number == 0 else form)
                number += 1
        if name.endswith("_saveexec_b64"):
            self._forget("exec")
        if name.startswith("s_") and not name.startswith(("s_mov", "s_mul", "s_cselect", "s_cmov")):
            self._set("scc", self._part(opaque, -1))

    def _linear(self, name: str, sources: Sequence[str]) -> Form | None:
        """The low word of an integer operation that is linear; None where it is not."""
        if not name.startswith(("s_", "v_")) or not sources:
            return None
        values = [self._value(source) for source in sources]
        operation = name[2:]
        if operation in ("cselect_b32", "cndmask_b32"):
            # A masked buffer access takes an offset that is always out of bounds; in a full
            # iteration no mask hides anything, so it is the other offset that counts.
            offsets = [value for value in values[:2] if value != _OUT_OF_BOUNDS]
            return offsets[0] if len(offsets) == 1 else None
        if operation in ("bfrev_b32", "brev_b32") and not values[0].terms:
            return Form(int(f"{values[0].constant:032b}"[::-1], 2))
        if operation in ("mov_b32", "mov_b64", "movk_i32", "readfirstlane_b32"):
            return values[0]
        if operation in ("add_i32", "add_u32", "addk_i32", "add_co_u32", "add_u64"):
            return values[0].plus(values[1])
        if operation in ("sub_i32", "sub_u32", "sub_co_u32"):
            return values[0].plus(values[1], -1)
        if operation == "add3_u32":
            return values[0].plus(values[1]).plus(values[2])
        if operation in ("mul_i32", "mulk_i32", "mul_lo_u32", "mul_u32_u24", "mul_i32_i24"):
            return _product(values[0], values[1])
        if operation in ("mad_u32_u24", "mad_i32_i24", "mad_u64_u32"):
            product = _product(values[0], values[1])
            return None if product is None else product.plus(values[2])
        if operation in ("lshl_b32", "lshl_b64"):
            return _shifted(values[0], values[1])
        if operation in ("lshlrev_b32", "lshlrev_b64"):
            return _shifted(values[1], values[0])
        if operation in ("lshl_add_u32", "lshl_add_u64"):
            shifted = _shifted(values[0], values[1])
            return None if shifted is None else shifted.plus(values[2])
        if operation == "add_lshl_u32":
            return _shifted(values[0].plus(values[1]), values[2])
        return None

    def _value(self, source: str) -> Form:
        """The low word of an operand."""
        named = registers(source)
        if named:
            register = named[0]
            if register not in self.forms:
                self.forms[register] = self._unknown(("entry", register), frozenset())
            plain = source.strip("-|")
            return (
                self.forms[register]
                if plain == source
                else self._unknown(
                    (source[:1], self.forms[register]), self._origins_of(self.forms[register])
                )
            )
        try:
            return Form(int(source, 0) & _MASK)
        except ValueError:
            return self._unknown(("text", source), frozenset())

    def _opaque(self, name: str, sources: Sequence[str], flags: Sequence[str]) -> Form:
        words: list[Form | str] = []
        origins: frozenset[int] = frozenset()
        for source in (*sources, *flags):
            named = registers(source)
            for register in named:
                form = self._value(register)
                words.append(form)
                origins |= self._origins_of(form)
            if not named:
                words.append(source)
        return self._unknown((name, *words), origins)

    def _part(self, whole: Form, number: int) -> Form:
        return self._unknown(("part", whole, number), self._origins_of(whole))

    def _unknown(self, what: object, origins: frozenset[int]) -> Form:
        identity = self._unknowns.setdefault(what, len(self._unknowns))
        self._origins[identity] = self._origins.get(identity, frozenset()) | origins
        return Form(0, ((identity, 1),))

    def _origins_of(self, form: Form) -> frozenset[int]:
        return frozenset().union(*(self._origins[unknown] for unknown, _ in form.terms))

    def _set(self, register: str, form: Form) -> None:
        self.forms[register] = form

    def _forget(self, operand: str | None) -> None:
        for register in registers(operand or ""):
            self._fresh += 1
            self.forms[register] = self._unknown(("fresh", self._fresh), frozenset())


def _product(first: Form, second: Form) -> Form | None:
    if not first.terms:
        return second.times(first.constant)
    return first.times(second.constant) if not second.terms else None


def _shifted(value: Form, amount: Form) -> Form | None:
    return value.times(1 << (amount.constant & 31)) if not amount.terms else None


def constants_before(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Registers that hold a literal after the instructions, taken in the order of the text."""
    found: dict[str, int] = {}
    for instruction in instructions:
        written = registers(instruction.operands[0]) if instruction.operands else ()
        for register in written:
            found.pop(register, None)
        if instruction.mnemonic in _LITERAL_MOVES and len(written) == 1:
            form = Values()._linear(instruction.mnemonic, instruction.operands[1:])
            if form is not None and not form.terms:
                found[written[0]] = form.constant
    return found


def steady_accesses(
    instructions: Sequence[Instruction],
    iterations: int = 4,
    *,
    constants: Mapping[str, int] | None = None,
) -> tuple[tuple[Access, ...], Mapping[int, bool]]:
    """Accesses of an iteration in the steady state, and whether each position feeds an address.

    Values are followed through several iterations, so that an index that one iteration loads for
    the next one, and bytes that the previous iteration loaded, are recognised. ``constants`` are
    registers that hold a literal when the first one begins.
    """
    values = Values({name: Form(value) for name, value in (constants or {}).items()})
    accesses: list[Access] = []
    for _ in range(iterations):
        accesses = values.walk(instructions)
    return tuple(accesses), {
        access.position: access.position in values.feeding for access in accesses
    }
