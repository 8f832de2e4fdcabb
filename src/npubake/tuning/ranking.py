"""tuning: which activations cost most when they alone are quantised. Noise functions enter, names leave."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Noises = Callable[[Sequence[Sequence[str]]], Sequence[float]]  # of several groups of names, in their order


def worst_first(names: Sequence[str], noises: Noises, count: int) -> list[str]:
    """The ``count`` of ``names`` that make the most noise each by itself, worst first.

    Noises of different tensors are nearly independent and add up, so a group that is quiet holds no loud member: groups
    are halved, the loudest first, until the loudest are single names. About 2 * count * log2(names) noises are asked
    for, not one for each name. Ties go by the order of ``names``.
    """
    found: list[str] = []
    heap = [(-float("inf"), 0, len(names))] if names else []
    while heap and len(found) < count:
        _, start, end = heapq.heappop(heap)
        if end - start == 1:
            found.append(names[start])
            continue
        middle = (start + end) // 2
        halves = [(start, middle), (middle, end)]
        for (low, high), noise in zip(halves, noises([names[low:high] for low, high in halves]), strict=True):
            heapq.heappush(heap, (-noise, low, high))
    return found
