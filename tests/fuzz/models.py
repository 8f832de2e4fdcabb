"""Random models: by hypothesis, which shrinks what fails, or by a seed, for long runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

from tests.fuzz import movements, operators, products
from tests.fuzz.growing import DeadEndError, Dice, Growth

OPERATORS: tuple[Callable[[Growth, str], str], ...] = (
    operators.function,
    operators.function,
    operators.gate,
    operators.convolution,
    operators.convolution,
    operators.convolution,
    operators.transposed,
    operators.linear,
    operators.linear,
    operators.product,
    operators.combined,
    operators.combined,
    operators.joined,
    operators.softmax,
    operators.normalised,
    operators.left_in_float,
    movements.moved,
    movements.moved,
    movements.pooled,
    movements.reduced,
    movements.resized,
)
ON_NUMBERS = (operators.function, operators.gate, operators.combined)  # tensors without a dimension
INPUTS: tuple[tuple[int, ...], ...] = (
    (1, 4, 6, 6), (1, 3, 5, 4), (2, 4, 4, 4), (3, 7), (1, 8), (2, 3, 8), (1, 5, 9), (1, 2, 3, 4, 3), (6,)
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """Choices by hypothesis."""

    draw: Any

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.draw(st.integers(0, len(options) - 1))]


@dataclass(frozen=True)
class Rolled:
    """Choices by a seeded generator."""

    source: random.Random

    def integer(self, low: int, high: int) -> int:
        return self.source.randint(low, high)

    def choice(self, options: Sequence[Any]) -> Any:
        return self.source.choice(options)


@st.composite
def models(draw: Any, most: int = 7) -> onnx.ModelProto:
    """Models of 1 to ``most`` operators."""
    return grown(Drawn(draw), draw(st.integers(0, 2**16)), draw(st.integers(1, most)))


def from_seed(seed: int) -> onnx.ModelProto:
    """The model of a number."""
    source = random.Random(seed)
    return grown(Rolled(source), source.randrange(2**16), source.randint(1, 9))


def with_products(seed: int) -> onnx.ModelProto:
    """The model of a number, of the same operators and of products in every spelling."""
    source = random.Random(seed)
    spelt = (*OPERATORS, *[products.spelt] * (len(OPERATORS) // 2))
    return grown(Rolled(source), source.randrange(2**16), source.randint(1, 9), spelt)


def grown(
    dice: Dice, weights: int, steps: int, operators: Sequence[Callable[[Growth, str], str]] = OPERATORS
) -> onnx.ModelProto:
    """A model of up to ``steps`` operators; each is put on one of the latest tensors."""
    growth = Growth(dice=dice, generator=np.random.default_rng(weights))
    for _ in range(1 + int(dice.integer(0, 3) == 0)):
        name = growth.fresh("x")
        growth.shapes[name] = dice.choice(INPUTS)
        growth.inputs.append(name)
    for _ in range(steps):
        mark, tensor = growth.mark(), dice.choice(list(growth.shapes)[-3:])
        try:
            dice.choice(operators if growth.shapes[tensor] else ON_NUMBERS)(growth, tensor)
        except DeadEndError:
            growth.back(mark)
    made = [name for name in growth.shapes if name not in growth.inputs]
    if not made:
        made = [growth.add("Relu", [growth.inputs[0]])]
    read = {name for node in growth.nodes for name in node.input}
    outputs = [name for name in made if name not in read] or made[-1:]
    if dice.integer(0, 4) == 0:
        outputs = list(dict.fromkeys([*outputs, dice.choice(made)]))
    growth.inputs = [name for name in growth.inputs if name in read] or growth.inputs[:1]
    return growth.model(outputs)
