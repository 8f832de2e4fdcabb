"""Bytes in memory: strides, aligned sizes, nv12 planes, the liveness-based memory plan."""
