"""The detector's input frame, as the training and the measurement make it."""

from __future__ import annotations

import numpy as np
from PIL import Image


def letterbox(image: Image.Image, size: int) -> tuple[np.ndarray, float, int, int]:
    """Keep the aspect ratio, bilinear, centred, padded with grey 114.

    Returns the uint8 frame, the scale, and the left and top padding.
    """
    scale = min(size / image.width, size / image.height)
    width, height = round(image.width * scale), round(image.height * scale)
    left, top = (size - width) // 2, (size - height) // 2
    canvas = np.full((size, size, 3), 114, dtype=np.uint8)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    canvas[top : top + height, left : left + width] = np.asarray(resized)
    return canvas, scale, left, top
