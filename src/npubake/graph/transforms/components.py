"""Room ``graph/transforms``: connected components of integers joined by pairs. Arrays in, an array out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def components(count: int, left: Ids, right: Ids) -> Ids:
    """The least member of each integer's component, int64 [count]; ``left[k]`` and ``right[k]`` are joined.

    Hooking and pointer jumping (Shiloach and Vishkin, 1982): a logarithmic number of passes over the pairs.
    """
    root = np.arange(count, dtype=np.int64)
    while True:
        low = np.minimum(root[left], root[right])
        before = root.copy()
        np.minimum.at(root, root[left], low)
        np.minimum.at(root, root[right], low)
        while not np.array_equal(jumped := root[root], root):
            root = jumped
        if np.array_equal(root, before):
            return root
