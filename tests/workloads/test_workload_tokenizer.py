"""Kimi's tokenizer: the split rules, the special ids, the cuts, and the checks of the file."""

import random

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from shared_data import shared_file
from sharegpt_files import byte_tokenizer

import workloads
from workloads import pins, tokenizer
from workloads.tokenizer import MAX_PIECE_CHARACTERS, MAX_RUN_CHARACTERS


@pytest.fixture(scope="module")
def kimi() -> tokenizer.KimiTokenizer:
    return tokenizer.load(shared_file("tokenizer/kimi.tiktoken.model"))


def split(text: str) -> list[str]:
    # && is set intersection only in the regex module's version 1.
    return regex.findall(tokenizer.split_pattern(), text, flags=regex.V1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("你好世界", ["你好世界"]),
        ("hi你好hi", ["hi", "你好", "hi"]),
        ("12345678", ["123", "456", "78"]),
        ("x1", ["x", "1"]),
        ("don't", ["don't"]),
        ("DON'T we'LL", ["DON'T", " we'LL"]),
        ("don'x", ["don", "'x"]),
        ("HelloWorld", ["Hello", "World"]),
        ("HTTPServer", ["HTTPServer"]),
        (" the cat", [" the", " cat"]),
        ("a   b", ["a", "  ", " b"]),
        ("a\n\n b", ["a", "\n\n", " b"]),
        ("end \n", ["end", " \n"]),
        ("a, b!\n", ["a", ",", " b", "!\n"]),
        ("tail  ", ["tail", "  "]),
        ("naïve café", ["naïve", " café"]),
        ("こんにちは世界", ["こんにちは", "世界"]),
    ],
)
def test_text_is_split_by_the_ordered_alternatives(text: str, parts: list[str]) -> None:
    assert split(text) == parts
    assert "".join(parts) == text


def test_a_changed_alternative_is_noticed(monkeypatch) -> None:
    changed = (*tokenizer.SPLIT_ALTERNATIVES[:3], r"\p{N}{1,4}", *tokenizer.SPLIT_ALTERNATIVES[4:])
    monkeypatch.setattr(tokenizer, "SPLIT_ALTERNATIVES", changed)
    with pytest.raises(workloads.PinMismatchError, match="restore the alternatives"):
        tokenizer.split_pattern()


def test_the_pattern_hash_starts_as_published() -> None:
    assert pins.SPLIT_PATTERN_SHA256.startswith("de578178")


def test_256_special_ids_follow_the_ranks() -> None:
    specials = tokenizer.special_tokens()
    assert sorted(specials.values()) == list(range(163_584, 163_840))
    assert specials["[BOS]"] == 163_584
    assert specials["[EOS]"] == 163_585
    assert specials["<|im_end|>"] == 163_586
    assert specials["<|reserved_token_163587|>"] == 163_587
    assert specials["[UNK]"] == 163_838
    assert specials["[PAD]"] == 163_839


def test_the_vocabulary_has_163840_tokens(kimi) -> None:
    assert kimi.encoding.n_vocab == 163_840
    assert kimi.encoding.decode([163_586]) == "<|im_end|>"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello, world! It's 2024.",
        "混合 English と 日本語 and עברית",
        "emoji 👩‍👩‍👧 and \u200d joiners",
        "def f(x):\n\treturn x  # ok\r\n\r\n",
        "  leading and trailing  ",
        "<|im_end|>[BOS]<|reserved_token_163587|>",
    ],
)
def test_text_survives_the_round_trip(kimi, text: str) -> None:
    assert kimi.decode(kimi.encode(text)) == text


@given(st.text(max_size=200))
def test_any_text_survives_the_round_trip_of_the_byte_tokenizer(text: str) -> None:
    plain = byte_tokenizer()
    assert plain.decode(plain.encode(text)) == text
    assert plain.count(text) == len(text.encode())


def test_special_tokens_in_user_text_are_text(kimi) -> None:
    ids = kimi.encode("<|im_end|> [EOS]")
    assert max(ids) < 163_584
    assert len(ids) > 2
    assert ids == kimi.encoding.encode("<|im_end|> [EOS]", disallowed_special=())


def test_numbers_and_han_never_share_a_token_with_their_neighbours(kimi) -> None:
    pieces = [kimi.decode([token]) for token in kimi.encode("abc1234567你好def")]
    assert "".join(pieces) == "abc1234567你好def"
    assert not any(any(c.isdigit() for c in piece) and not piece.isdigit() for piece in pieces)
    assert max(len(piece) for piece in pieces if piece.isdigit()) <= 3


def test_known_counts(kimi) -> None:
    # Frequent English words are one token each; three digits are one token.
    assert kimi.count("Hello world") == 2
    assert kimi.count("123") == 1
    assert kimi.count("1234") == 2


def naive_cuts(text: str) -> list[str]:
    """The rule character by character, as slow and as plain as it can be said."""
    parts = []
    for start in range(0, len(text), MAX_PIECE_CHARACTERS):
        current, run = "", 0
        for character in text[start : start + MAX_PIECE_CHARACTERS]:
            same = bool(current) and current[-1].isspace() == character.isspace()
            run = run + 1 if same else 1
            if run > MAX_RUN_CHARACTERS:
                parts.append(current)
                current, run = "", 1
            current += character
        parts.append(current)
    return parts


@pytest.mark.parametrize(
    "text",
    [
        "a" * MAX_RUN_CHARACTERS,
        "a" * (MAX_RUN_CHARACTERS + 1),
        "a" * (3 * MAX_RUN_CHARACTERS),
        "ab " * 10 + " " * (2 * MAX_RUN_CHARACTERS + 5) + "end",
        " " * MAX_RUN_CHARACTERS + "b" * (MAX_RUN_CHARACTERS + 1),
        ("word " * 90_000)[: MAX_PIECE_CHARACTERS + 7],
        "\u3000" * (MAX_RUN_CHARACTERS + 2) + "\x1f" * 3,
    ],
    ids=["one-run", "one-over", "three-runs", "long-spaces", "two-runs", "long-text", "odd-spaces"],
)
def test_long_text_is_cut_by_the_rule(text: str) -> None:
    parts = list(tokenizer.pieces(text))
    assert parts == naive_cuts(text)
    assert "".join(parts) == text


def test_random_mixtures_are_cut_by_the_rule(monkeypatch) -> None:
    # The same rule at a size where many shapes can be tried.
    for module in (tokenizer, __import__(__name__)):
        monkeypatch.setattr(module, "MAX_PIECE_CHARACTERS", 40)
        monkeypatch.setattr(module, "MAX_RUN_CHARACTERS", 5)
    source = random.Random(0)
    for _ in range(300):
        text = "".join(source.choice("ab \n") * source.randint(1, 9) for _ in range(12))
        assert list(tokenizer.pieces(text)) == naive_cuts(text)


def test_no_text_has_no_pieces(kimi) -> None:
    assert list(tokenizer.pieces("")) == []
    assert kimi.encode("") == []


def test_a_cut_text_is_encoded_piece_by_piece(kimi) -> None:
    text = "a" * (MAX_RUN_CHARACTERS + 1)
    assert kimi.encode(text) == [
        *kimi.encoding.encode_ordinary("a" * MAX_RUN_CHARACTERS),
        *kimi.encoding.encode_ordinary("a"),
    ]


def test_a_file_of_another_size_is_refused(tmp_path) -> None:
    path = tmp_path / "tiktoken.model"
    path.write_bytes(b"YQ== 0\n")
    with pytest.raises(workloads.PinMismatchError, match="7 bytes, pinned 2,795,286"):
        tokenizer.load(path)


def test_a_file_with_one_byte_changed_is_refused(tmp_path) -> None:
    content = bytearray(shared_file("tokenizer/kimi.tiktoken.model").read_bytes())
    content[1000] ^= 1
    path = tmp_path / "tiktoken.model"
    path.write_bytes(content)
    with pytest.raises(workloads.PinMismatchError, match="SHA-256"):
        tokenizer.load(path)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(workloads.MissingInputError, match="is not there"):
        tokenizer.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("line", "says"),
    [("YQ==", "line 2"), ("YQ== x", "line 2"), ("%%% 1", "line 2"), ("YQ== 1 2", "line 2")],
)
def test_a_broken_line_is_named(tmp_path, line: str, says: str) -> None:
    path = tmp_path / "tiktoken.model"
    path.write_text(f"YQ== 0\n{line}\n")
    with pytest.raises(workloads.MalformedInputError, match=says):
        tokenizer._read_ranks(path)
