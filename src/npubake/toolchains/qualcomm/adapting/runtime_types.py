"""Qualcomm toolchain: which runtime inputs ``adapt`` turns into nodes that the compiler takes. Data only."""

from __future__ import annotations

from npubake.fixedpoint.colour import RuntimeType

RUNTIME_TYPES: tuple[RuntimeType, ...] = ("rgb", "bgr", "gray", "featuremap")
