"""How many tokens a kernel executes for the tokens it was given: the padding rules in use.

Sampled lengths are what a workload holds and what throughput counts; executed lengths are what a
kernel computes. Both are recorded, so that padding shows as lost throughput and never as gained.
"""

from workloads.errors import WorkloadError

# A KDA strip is 16 columns and a chunk 64 tokens; a kernel pads each sequence to one of them.
STRIP_TOKENS = 16
CHUNK_TOKENS = 64
EXECUTED_MULTIPLES = (STRIP_TOKENS, CHUNK_TOKENS)

# The smallest bucket of the published TPU v6e replay.
SMALLEST_BUCKET_TOKENS = 128


def padded_length(length: int, multiple: int) -> int:
    """``length`` rounded up to a multiple of ``multiple`` tokens; an empty sequence stays empty."""
    if multiple < 1:
        raise WorkloadError(f"padding multiple {multiple} must be at least 1")
    if length < 0:
        raise WorkloadError(f"length {length} is negative: lengths count tokens")
    return -(-length // multiple) * multiple


def serving_bucket(tokens: int) -> int:
    """The packed length a serving stack with power-of-two buckets executes: at least 128 tokens.

    The rule behind the ``padded`` throughput published for the TPU v6e replay: the whole packed
    axis (not each sequence) is padded up, and the rest of it is one dummy sequence.
    """
    if tokens < 1:
        raise WorkloadError(f"a batch of {tokens} tokens fits no bucket: give at least 1")
    return max(SMALLEST_BUCKET_TOKENS, 1 << (tokens - 1).bit_length())
