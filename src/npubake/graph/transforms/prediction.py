"""Room ``graph/transforms``: the error that factors leave, predicted. Ranges and weights enter, numbers leave.

Rounding to a step s adds s^2 / 12 to a value's expected square (Widrow and Kollar, Quantization Noise, 2008, ch. 5).
For a weighted operator y_o = sum_j W_oj x_j with inputs of mean square m_j, independent of each other, that is

    of activations   s_x^2 / 12 * sum_oj W_oj^2,                    s_x = (max - min) / levels over the whole tensor
    of weights       sum_o s_o^2 / 12 * taps * sum_j m_j,           s_o = max_j |W_oj| / levels, a step for each row

With x_j scaled by f_j and W_oj by 1 / f_j both steps change. Errors are taken relative to the mean square of y, and
added up over all operators that read a *family*: tensors that share channels. A tensor of a family that no operator
reads itself (a term of a residual sum) hands its error on to those that read the channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from npubake.graph.transforms.channels import FIXED, ChannelMap, Ids
from npubake.graph.transforms.ranges import ChannelRange
from npubake.graph.transforms.weights import column_energies, row_maxima

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Steps between the ends of the range: of an activation, and of the magnitude of a weight."""

    activation: int = 255
    weight: int = 127


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Read:
    """One operator: relative to its output's mean square, what an error of input channel j costs, and its weights."""

    node: onnx.NodeProto
    ids: Ids
    weight: NDArray[np.float32]
    squares: Values
    costs: Values
    signal: float


class Prediction:
    """The predicted error of a model's families, for any factors. observed: along the axes of ``channels``."""

    def __init__(self, channels: ChannelMap, observed: Mapping[str, ChannelRange], levels: Levels) -> None:
        self._channels, self._observed, self._levels = channels, observed, levels
        self._families = channels.families()
        self._reads = [read for entry in channels.readers if (read := self._read(entry.node, entry.ids)) is not None]
        self._costs = np.zeros(channels.count)
        for read in self._reads:
            np.add.at(self._costs, read.ids, read.costs)

    def errors(self, factors: Values) -> Values:
        """float64 by id, the same for every id of a family: its predicted error; 0 where nothing is known of it."""
        total = np.zeros(self._channels.count)
        for tensor, ids in self._channels.ids.items():
            family = self._family(ids)
            entry = self._observed.get(tensor)
            if family is None or entry is None:
                continue
            own = factors[ids]
            high, low = max(float((entry.high * own).max()), 0.0), min(float((entry.low * own).min()), 0.0)
            step = (high - low) / self._levels.activation
            free = ids != FIXED
            total[family] += step * step / 12.0 * float((self._costs[ids[free]] / own[free] ** 2).sum())
        for read in self._reads:
            family = self._family(read.ids)
            if family is None:
                continue
            own = factors[read.ids]
            steps = row_maxima(read.node, read.weight, 1.0 / own) / self._levels.weight
            groups = steps.shape[0]
            squares = (read.squares * own * own).reshape(groups, -1).sum(axis=1)
            taps = read.weight[0, 0].size if read.node.op_type in ("Conv", "ConvTranspose") else 1
            noise = float(((steps * steps).sum(axis=1) * squares).sum()) * taps / 12.0
            total[family] += noise / read.signal
        return total[self._families]

    def _family(self, ids: Ids) -> int | None:
        free = ids[ids != FIXED]
        return int(self._families[free[0]]) if free.size else None

    def _read(self, node: onnx.NodeProto, ids: Ids) -> _Read | None:
        """None where nothing was observed of what ``node`` reads, or where it is zero."""
        entry = self._observed.get(node.input[0])
        if entry is None:
            return None
        weight = self._channels.editor.needed_constant(node.input[1])
        energies = column_energies(node, weight)
        signal = float((energies * entry.square).sum())
        if signal <= 0.0:
            return None
        return _Read(node=node, ids=ids, weight=weight, squares=entry.square, costs=energies / signal, signal=signal)
