"""quant: what each tensor would lose to every method and number format, from its statistics alone. No inference.

A forecast is of one tensor by itself (``quant.expected_error``): scales that it would share with others, and what the
layers behind it make of its error, are left out. So it ranks tensors and choices; it does not foretell the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npubake.calibration.statistics import TensorStatistics
from npubake.graph.summary import GraphSummary
from npubake.quant.affine import tensor_parameters
from npubake.quant.expected_error import expected_error, expected_float16_error
from npubake.quant.ranges import Range, including_zero, snapped
from npubake.quant.tensor_ranges import barely_used, fixed_range, wide_range
from npubake.quant.thresholds import MEASURED_METHODS, Threshold, measured_range

PERCENTILE = Threshold().percentile
EIGHT_BITS = ("uint8", "uint8_symmetric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One tensor. layer: the fusion group that makes it, '' for a graph input; minimum, maximum: what was seen; known:
    True where its range is declared or fixed by mathematics, whatever the method.

    eight_bits: format (``uint8``, ``uint8_symmetric``) -> method -> SQNR in dB; int16, float16: SQNR in dB. Infinite
    where nothing is lost (a tensor of zeros); -inf where float16 overflows.
    """

    tensor: str
    layer: str
    kind: str
    minimum: float
    maximum: float
    known: bool
    eight_bits: Mapping[str, Mapping[str, float]]
    int16: float
    float16: float


def forecasts(
    summary: GraphSummary,
    statistics: Mapping[str, TensorStatistics],
    declared: Mapping[str, Range],
    percentile: float = PERCENTILE,
) -> tuple[Forecast, ...]:
    """Every quantisable tensor of which an element was seen, in graph order. declared: ranges of graph inputs;
    percentile: the share that the method of that name keeps.
    """
    makers = summary.producer_group()
    measured = barely_used(summary, statistics, declared)
    made = []
    for name in summary.quantisable():
        if name not in statistics or statistics[name].count < 1:
            continue
        maker = makers.get(name)
        known = declared.get(name) or (None if name in measured else fixed_range(maker))
        seen = statistics[name]
        made.append(
            Forecast(
                tensor=name,
                layer=maker.name if maker else "",
                kind=maker.kind if maker else "input",
                minimum=seen.minimum,
                maximum=seen.maximum,
                known=known is not None,
                eight_bits={form: _methods(seen, known, percentile, form == "uint8") for form in EIGHT_BITS},
                int16=_int16(seen, known or wide_range(maker, including_zero(seen.minimum, seen.maximum))),
                float16=expected_float16_error(seen).sqnr_db,
            )
        )
    return tuple(made)


def eight_bit_sqnr(seen: TensorStatistics, threshold: Threshold) -> float:
    """SQNR in dB of a tensor in 8 bits, with the range that ``threshold`` keeps."""
    return _eight_bits(seen, snapped(measured_range(seen, threshold)), threshold.asymmetric)


def _methods(seen: TensorStatistics, known: Range | None, percentile: float, asymmetric: bool) -> dict[str, float]:
    if known is not None:
        return dict.fromkeys(MEASURED_METHODS, _eight_bits(seen, known, asymmetric))
    chosen = Threshold(percentile=percentile, asymmetric=asymmetric)
    return {method: eight_bit_sqnr(seen, replace(chosen, method=method)) for method in MEASURED_METHODS}


def _eight_bits(seen: TensorStatistics, span: Range, asymmetric: bool) -> float:
    return expected_error(seen, tensor_parameters(span, "uint8", asymmetric=asymmetric)).sqnr_db


def _int16(seen: TensorStatistics, span: Range) -> float:
    return expected_error(seen, tensor_parameters(span, "int16", asymmetric=False)).sqnr_db
