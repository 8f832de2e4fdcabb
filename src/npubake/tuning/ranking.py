"""tuning: which activations cost most when they alone are quantised. A noise function enters, names leave."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Noise = Callable[[Sequence[str]], float]


def worst_first(names: Sequence[str], noise: Noise, count: int) -> list[str]:
    """The ``count`` of ``names`` that make the most noise each by itself, worst first.

    Noises of different tensors are nearly independent and add up, so a group that is quiet holds no loud member: groups
    are halved, the loudest first, until the loudest are single names. ``noise`` is asked about 2 * count * log2(names)
    times in place of once for each name. Ties go by the order of ``names``.
    """
    found: list[str] = []
    heap = [(-float("inf"), 0, len(names))] if names else []
    while heap and len(found) < count:
        _, start, end = heapq.heappop(heap)
        if end - start == 1:
            found.append(names[start])
            continue
        middle = (start + end) // 2
        for low, high in ((start, middle), (middle, end)):
            heapq.heappush(heap, (-noise(names[low:high]), low, high))
    return found
