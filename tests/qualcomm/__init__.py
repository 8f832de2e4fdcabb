"""Tests that run the real HTP compiler and its emulator; each module sets ``pytestmark = needs_qnn``."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_qnn = pytest.mark.skipif(
    find_spec("onnxruntime_qnn") is None, reason="onnxruntime-qnn is not installed: make test-qualcomm"
)
