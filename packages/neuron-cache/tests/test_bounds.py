from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_neuronx_cache import Limits, StoredBlob
from torch_neuronx_cache.bounds import parse_age, parse_size, victims
from torch_neuronx_cache.errors import CacheConfigurationError

BLOBS = st.lists(
    st.builds(
        StoredBlob,
        digest=st.text("0123456789abcdef", min_size=4, max_size=4),
        size=st.integers(0, 1000),
        created=st.just(0.0),
        used=st.floats(0, 100),
    ),
    max_size=20,
    unique_by=lambda blob: blob.digest,
)


@given(BLOBS, st.none() | st.integers(0, 5000), st.none() | st.floats(0, 120))
def test_what_is_left_keeps_the_limits_and_no_more_goes_than_must(
    blobs: list[StoredBlob], max_bytes: int | None, max_age: float | None
) -> None:
    gone = victims(blobs, Limits(max_bytes, max_age), now=100)
    left = [blob for blob in blobs if blob not in gone]
    if max_bytes is not None:
        assert sum(blob.size for blob in left) <= max_bytes
    if max_age is not None:
        assert all(100 - blob.used <= max_age for blob in left)
    if gone and left:
        assert max(blob.used for blob in gone) <= min(blob.used for blob in left)
    if gone:  # without the last one, a limit would be broken
        last = gone[-1]
        too_old = max_age is not None and 100 - last.used > max_age
        assert too_old or sum(blob.size for blob in [*left, last]) > (max_bytes if max_bytes is not None else 10**9)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("64MiB", 64 * 2**20), ("1.5k", 1536), ("10 GB", 10 * 2**30), ("2t", 2**41), ("7b", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "age"), [("90", 90), ("15m", 900), ("36h", 129600), ("7d", 604800), ("2w", 1209600)])
def test_ages(text: str, age: float) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize("text", ["", "-1", "ten", "5x", "1 000", "0x10", "1e3"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(CacheConfigurationError, match="is not a size"):
        parse_size(text)
    with pytest.raises(CacheConfigurationError, match="is not an age"):
        parse_age(text)
