"""What the ShareGPT-derived workload is pinned to: files, stage counts, statistics, hashes.

Everything that identifies the workload is here and nowhere else; the pipeline, the importer, the
surrogate and ``k3bench workloads verify`` all read this file. A figure that changes here is a
different workload and wants a different name.
"""

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class FilePin:
    """One file of a hub repository, named so that its bytes can be checked after the download."""

    repo_id: str
    repo_type: Literal["dataset", "model"]
    filename: str
    revision: str  # 40 hex digits: a branch name or a short hash does not resolve offline
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class StageCounts:
    """How many records are left after each stage of the recipe, in order.

    ``gpt_first`` is no stage: it counts the records whose first two turns are gpt then human, the
    largest group that the role filter drops.
    """

    records: int
    two_turns: int
    human_then_gpt: int
    length_filtered: int
    gpt_first: int


@dataclass(frozen=True)
class Statistics:
    """Statistics of a multiset of prompt lengths, in tokens.

    ``percentiles`` maps a percentage to the linearly interpolated percentile; ``buckets`` holds
    (lowest length, highest length, count), both ends included.
    """

    count: int
    minimum: int
    maximum: int
    mean: float
    std: float
    percentiles: tuple[tuple[float, float], ...]
    buckets: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class LengthFilter:
    """The length filter of vLLM's ShareGPT benchmark; every bound is included."""

    min_prompt_tokens: int = 4
    min_output_tokens: int = 4
    max_prompt_tokens: int = 1024
    max_total_tokens: int = 2048

    def keeps(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether a pair of this many prompt and output tokens stays in the workload."""
        return (
            self.min_prompt_tokens <= prompt_tokens <= self.max_prompt_tokens
            and output_tokens >= self.min_output_tokens
            and prompt_tokens + output_tokens <= self.max_total_tokens
        )


# Source: the dataset's page on the hub; size and hash of the file as downloaded from there.
DATASET = FilePin(
    repo_id="anon8231489123/ShareGPT_Vicuna_unfiltered",
    repo_type="dataset",
    filename="ShareGPT_V3_unfiltered_cleaned_split.json",
    revision="192ab2185289094fc556ec8ce5ce1e8e587154ca",
    size_bytes=672_837_942,
    sha256="35f0e213ce091ed9b9af2a1f0755e9d39f9ccec34ab281cd4ca60d70f6479ba4",
)

# Source: the model's page on the hub. Kimi has shipped the same bytes since K2.
TOKENIZER = FilePin(
    repo_id="moonshotai/Kimi-K3",
    repo_type="model",
    filename="tiktoken.model",
    revision="9f62e4e9fffbd0a83ddd60e1c209d828994b3569",
    size_bytes=2_795_286,
    sha256="b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103",
)

# The split pattern's alternatives joined with "|" (see tokenizer.py), as UTF-8.
SPLIT_PATTERN_SHA256 = "de5781783b193d5ccf5b1b28edfa70fa816ce78d54603fdc422cfd8d4ea4411f"

LENGTH_FILTER = LengthFilter()

STAGE_COUNTS = StageCounts(
    records=94_145,
    two_turns=92_886,
    human_then_gpt=58_787,
    length_filtered=52_229,
    gpt_first=33_826,
)

# Source: the statistics published with the TPU v6e results (kda-tpu-bench); mean and standard
# deviation to two decimals, percentiles by linear interpolation.
STATISTICS = Statistics(
    count=52_229,
    minimum=4,
    maximum=1024,
    mean=108.20,
    std=189.81,
    percentiles=(
        (10.0, 8.0),
        (25.0, 13.0),
        (50.0, 28.0),
        (75.0, 94.0),
        (90.0, 336.0),
        (95.0, 571.0),
        (99.0, 928.0),
        (99.9, 1016.0),
    ),
    buckets=(
        (4, 8, 5_720),
        (9, 16, 11_379),
        (17, 32, 10_900),
        (33, 64, 7_659),
        (65, 128, 5_848),
        (129, 256, 4_101),
        (257, 512, 3_531),
        (513, 1024, 3_091),
    ),
)

# SHA-256 of the 52,229 prompt lengths as compact JSON, sorted (the distribution) and in the order
# of the dataset file (what the draws index into). Statistics alone cannot tell a list with one
# number changed from the real one; these can.
LENGTHS_SORTED_SHA256 = "86c5a9378153252cadd4fcb09580a34f8bbd202884c8f1e6291d6a0938071484"
LENGTHS_IN_FILE_ORDER_SHA256 = "55960bb9f3736b2002af8d0f09df47cf5fcf05f29416ae3aae4a703a03306fb7"

# The surrogate: its sorted lengths as compact JSON, hashed like the real ones above.
SURROGATE_SORTED_SHA256 = "22cf1d0f39d9ade69d9fab44e253eeafa4f54f83f071378e8fa3a1b177340f96"

# The drawn lists: 100 lengths for each batch size, one length a batch.
DRAW_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
DRAWS_PER_BATCH_SIZE = 100
DRAW_SEED = 0

# SHA-256 of the committed files under workloads/data/.
DATA_FILE_SHA256 = {
    "draws_sharegpt_k3.json": "fc8a23bd6b1e6936c1355b92cb5162c0c2220b4b8786f7966120897fa4228705",
    "draws_sharegpt_k3_surrogate.json": (
        "a4114c30380e819d99b1819ea215560cc666ee1befd5a1fbd146351b26c51c24"
    ),
    "surrogate_sharegpt_k3.csv": "f0c4a8dfcea800f505aa5641fce21fb80dd2a8f55546f807bbd8bbdd0d07b376",
}

# SHA-256 over the ids and content hashes of each built-in family (verification.family_sha256).
FAMILY_SHA256 = {
    "kda-headline": "275a29bae07436cee75c5a50a191111112adff8b88e0f38bbc4600940ff38a8d",
    "kda-grid": "97efbb4cdc13d49423de0700a3ae74f0f9c48949b47455454a8a83840297659f",
    "kda-series": "042802b826a130b5a086f28b646afd120c13d121905516782f30495a5444a281",
    "kda-decode": "a4887331ffedb234afe38d3fe6a68b1cc9ce39a62f84d8171dacfa838ca55104",
    "mla-decode": "bfc2c2c90deb75da7cf3bcc3fd7b373b197954a06e7d08cca500366b0ee73654",
    "mla-prefill": "54d3e836922814f36a26da8302636efac03f29725c970e4276e3b3892763f94d",
    "mla-chunk": "4eb2d0adac4e89aa6bc01db6d69418fd559a11efdc37b4d177a1187fc5485a85",
    "sharegpt-k3": "2181d75cccef490428c268c2096b1d0ab0f9011f8751eb9dc8600e116f81cba1",
    "sharegpt-k3-surrogate": "3c5e4caafbd16d1ac716e3c0e26d3065e31fe5318502d9c72657a2d6850d2558",
}


def record() -> dict[str, object]:
    """The pins as plain JSON types, for a run's manifest: what its workloads were pinned to."""
    return {
        "dataset": asdict(DATASET),
        "tokenizer": asdict(TOKENIZER),
        "split_pattern_sha256": SPLIT_PATTERN_SHA256,
        "lengths_sorted_sha256": LENGTHS_SORTED_SHA256,
        "surrogate_sorted_sha256": SURROGATE_SORTED_SHA256,
        "data_file_sha256": dict(DATA_FILE_SHA256),
        "family_sha256": dict(FAMILY_SHA256),
    }
