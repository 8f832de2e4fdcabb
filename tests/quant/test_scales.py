"""quant: from ranges of sharing classes to their integer forms."""

from __future__ import annotations

import numpy as np

from npubake.quant.ranges import Range
from npubake.quant.scales import ClassRange, class_parameters


def test_each_class_takes_its_own_range_and_a_dead_one_the_neutral() -> None:
    made = class_parameters(
        {
            "x": ClassRange(span=Range(low=0.0, high=2.0), dtype="uint8", asymmetric=True),
            "y": ClassRange(span=Range(low=-1.0, high=4.0), dtype="int16", asymmetric=True),
            "z": ClassRange(span=Range(low=0.0, high=0.0), dtype="uint8", asymmetric=True),
        },
        {"a": "x", "b": "x", "y": "y", "z": "z"},
    )
    assert {name: form.scale for name, form in made.items()} == {
        "a": float(np.float32(2 / 255)),
        "b": float(np.float32(2 / 255)),
        "y": float(np.float32(4 / 32767)),
        "z": float(np.float32(1 / 255)),
    }
