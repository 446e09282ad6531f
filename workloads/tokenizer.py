"""Kimi's tokenizer: tiktoken over the pinned rank file, special ids by rule, long text cut."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workloads import pins
from workloads.download import check_file
from workloads.errors import MalformedInputError, PinMismatchError

if TYPE_CHECKING:
    import tiktoken

RANKS = 163_584
SPECIAL_TOKENS = 256
VOCABULARY = RANKS + SPECIAL_TOKENS

# The special ids that the model names; every other one is a numbered reserve.
NAMED_SPECIAL_TOKENS: Mapping[int, str] = {
    163_584: "[BOS]",
    163_585: "[EOS]",
    163_586: "<|im_end|>",
    163_838: "[UNK]",
    163_839: "[PAD]",
}

# What an English contraction after a word may be, in any case.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"

# Ordered: the first alternative that matches wins.
SPLIT_ALTERNATIVES = (
    r"[\p{Han}]+",
    f"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}",
    f"{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)

# tiktoken's regular expressions take time and memory that grow faster than the text: Kimi cuts at
# a number of characters, and at runs of all-space or all-non-space.
MAX_PIECE_CHARACTERS = 400_000
MAX_RUN_CHARACTERS = 25_000
_RUN = re.compile(r"\s+|\S+")


def split_pattern() -> str:
    """The alternatives joined; raises ``PinMismatchError`` where they are not the pinned ones."""
    pattern = "|".join(SPLIT_ALTERNATIVES)
    found = hashlib.sha256(pattern.encode()).hexdigest()
    if found != pins.SPLIT_PATTERN_SHA256:
        raise PinMismatchError(
            f"the split pattern in tokenizer.py has SHA-256 {found}, pinned "
            f"{pins.SPLIT_PATTERN_SHA256}: restore the alternatives"
        )
    return pattern


def special_tokens(ranks: int = RANKS) -> dict[str, int]:
    """The 256 special tokens that follow the ranks: name -> id.

    The model names a few; the rest are ``<|reserved_token_{id}|>`` with the absolute id.
    """
    return {
        NAMED_SPECIAL_TOKENS.get(token_id, f"<|reserved_token_{token_id}|>"): token_id
        for token_id in range(ranks, ranks + SPECIAL_TOKENS)
    }


def pieces(text: str) -> Iterator[str]:
    """The text cut as Kimi cuts it before encoding; joined, the pieces are the text again."""
    for start in range(0, len(text), MAX_PIECE_CHARACTERS):
        yield from _cut_runs(text[start : start + MAX_PIECE_CHARACTERS])


def _cut_runs(text: str) -> Iterator[str]:
    """Cut before the character that would make a run of one kind longer than the limit."""
    start = 0
    if len(text) > MAX_RUN_CHARACTERS:
        for run in _RUN.finditer(text):
            # The count starts again after every cut, so each cut leaves a full run behind it.
            for cut in range(run.start() + MAX_RUN_CHARACTERS, run.end(), MAX_RUN_CHARACTERS):
                yield text[start:cut]
                start = cut
    yield text[start:]


@dataclass(frozen=True)
class KimiTokenizer:
    """Encodes user text: special-token strings in it are text, not specials.

    ``identity`` tells tokenizers apart in a cache: the SHA-256 of the rank file.
    """

    encoding: "tiktoken.Encoding"
    identity: str

    def encode(self, text: str) -> list[int]:
        """Token ids (0..163,583) of ``text``, no chat template, no BOS."""
        ids: list[int] = []
        for piece in pieces(text):
            # encode_ordinary is encode(disallowed_special=()) without the scan for specials.
            ids.extend(self.encoding.encode_ordinary(piece))
        return ids

    def count(self, text: str) -> int:
        """Number of tokens of ``text``."""
        return len(self.encode(text))

    def decode(self, ids: list[int]) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return str(self.encoding.decode(ids))


def load(path: Path, pin: pins.FilePin = pins.TOKENIZER) -> KimiTokenizer:
    """The tokenizer from a local rank file, whose size and SHA-256 must be the pinned ones."""
    import tiktoken

    check_file(path, pin)
    ranks = _read_ranks(path)
    if len(ranks) != RANKS:
        raise MalformedInputError(f"{path} holds {len(ranks):,} ranks, Kimi's file holds {RANKS:,}")
    return KimiTokenizer(
        tiktoken.Encoding(
            name="kimi",
            pat_str=split_pattern(),
            mergeable_ranks=ranks,
            special_tokens=special_tokens(),
            explicit_n_vocab=VOCABULARY,
        ),
        identity=pin.sha256,
    )


def _read_ranks(path: Path) -> dict[bytes, int]:
    # tiktoken's own loader caches by path in the temporary directory and checks no size.
    ranks = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise MalformedInputError(
                f"{path}, line {number}: not '<base64 token> <rank>' ({error})"
            ) from error
    return ranks
