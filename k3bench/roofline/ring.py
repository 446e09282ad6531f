"""Ring attention: keys and values circulate over devices while each attends what it holds.

Every device has an equal share of the tokens. In each of D rounds it attends its queries to the
block that it holds and sends that block on; a round takes the longer of the two, the last one sends
nothing. Causal order leaves whole blocks masked: with contiguous shares device d works in d + 1
rounds and the slowest decides; striped shares (every D-th token) give every round about half.
"""

from dataclasses import dataclass
from typing import Literal

from k3bench.roofline.cost import Cost, itemsize, require_counts
from k3bench.roofline.dense import Dense, attention_gemms
from k3bench.roofline.errors import RooflineError
from k3bench.roofline.hardware import Hardware
from k3bench.roofline.pairs import causal_pairs
from k3bench.roofline.step import Step

Layout = Literal["contiguous", "striped"]


@dataclass(frozen=True)
class Round:
    """One round of the slowest device: seconds of attention and of sending, and which it waits for.

    Attributes:
        pairs: that the busiest device scores, of one sequence and head.
        compute_s, transfer_s: at peak rates.
    """

    pairs: int
    compute_s: float
    transfer_s: float

    @property
    def seconds(self) -> float:
        return max(self.compute_s, self.transfer_s)


@dataclass(frozen=True)
class Ring:
    """A prefill of one layer over ``devices`` devices."""

    attention: Dense
    devices: int
    layout: Layout = "contiguous"

    def __post_init__(self) -> None:
        require_counts(self, devices=self.devices)
        if self.layout not in ("contiguous", "striped"):
            raise RooflineError(f"layout {self.layout!r}: use contiguous or striped")

    def local_tokens(self, step: Step) -> int:
        """Of one sequence on one device."""
        if step.prefix_tokens or step.new_tokens % self.devices:
            raise RooflineError(
                f"{step.new_tokens} new tokens after {step.prefix_tokens} over {self.devices} "
                "devices: give a whole prefill with a multiple of that"
            )
        return step.new_tokens // self.devices

    def device_pairs(self, step: Step, device: int, turn: int) -> int:
        """Pairs that ``device`` scores in round ``turn``, holding block (device - turn) mod D."""
        local = self.local_tokens(step)
        block = (device - turn) % self.devices
        if self.layout == "striped":
            # Query i of the device stands at i D + device, key j of the block at j D + block.
            return causal_pairs(local) if block <= device else causal_pairs(local - 1)
        if block > device:
            return 0
        return causal_pairs(local) if block == device else local * local

    def block_bytes(self, step: Step) -> int:
        """Keys and values of one device's share, over the batch."""
        return step.batch * self.local_tokens(step) * self.attention.cache_bytes_per_token

    def rounds(self, step: Step, hardware: Hardware, dtype: str = "bf16") -> tuple[Round, ...]:
        """Every round as its busiest device sees it."""
        local = self.local_tokens(step)
        share = Step.prefill(local, step.batch)
        found = []
        for turn in range(self.devices):
            pairs = max(self.device_pairs(step, device, turn) for device in range(self.devices))
            form = self.attention
            gemms = attention_gemms(form.heads, form.qk_dim, form.v_dim, share, local, pairs)
            rows = share.tokens * form.heads * itemsize(form.dtype)
            work = Cost(
                gemms,
                scores=step.batch * form.heads * pairs,
                read={"cache": self.block_bytes(step), "q": rows * form.qk_dim},
                written={"o": rows * form.v_dim},
            )
            last = turn == self.devices - 1
            sent = 0 if last else self.block_bytes(step)
            found.append(
                Round(pairs, work.bound(hardware, dtype).seconds, sent / hardware.link.value)
            )
        return tuple(found)

    def seconds(self, step: Step, hardware: Hardware, dtype: str = "bf16") -> float:
        """Sum over rounds of max(compute, transfer)."""
        return sum(turn.seconds for turn in self.rounds(step, hardware, dtype))
