"""Durations in half-octave buckets: bucket b holds those from 2^(b/2)-1 to 2^((b+1)/2)-1 milliseconds."""

from __future__ import annotations

from collections.abc import Mapping


def upper_seconds(bucket: int) -> float:
    """Where a bucket ends.

    >>> upper_seconds(19)
    1.023
    """
    return float(2.0 ** ((bucket + 1) / 2) - 1) / 1000


def quantile(buckets: Mapping[int, int], share: float) -> float | None:
    """The duration in seconds under which this share lies, within a fifth; None when there is nothing.

    >>> quantile({0: 1}, 0.5) is not None, quantile({}, 0.5)
    (True, None)
    """
    total = sum(buckets.values())
    if not total:
        return None
    wanted = share * total
    seen = 0.0
    for bucket in sorted(buckets):
        here = buckets[bucket]
        if seen + here >= wanted:
            low = 0.0 if bucket == 0 else upper_seconds(bucket - 1)
            return low + (upper_seconds(bucket) - low) * max(0.0, wanted - seen) / here
        seen += here
    return upper_seconds(max(buckets))
