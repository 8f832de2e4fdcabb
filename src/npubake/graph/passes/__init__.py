"""The table of graph passes, in the order in which ``optimize`` applies them. A pass joins its tests by being here."""

from __future__ import annotations

from npubake.graph.passes.add_bias import add_bias
from npubake.graph.passes.clamp_mask_constants import clamp_mask_constants
from npubake.graph.passes.count_padding import count_padding
from npubake.graph.passes.drop_empty_parts import drop_empty_parts
from npubake.graph.passes.drop_unread_outputs import drop_unread_outputs
from npubake.graph.passes.eliminate_identities import eliminate_identities
from npubake.graph.passes.fold_affine import fold_affine
from npubake.graph.passes.fold_batch_normalization import fold_batch_normalization
from npubake.graph.passes.fold_constants import fold_constants
from npubake.graph.passes.fold_pad import fold_pad
from npubake.graph.passes.fuse_gelu import fuse_gelu
from npubake.graph.passes.fuse_hard_swish import fuse_hard_swish
from npubake.graph.passes.fuse_layer_normalization import fuse_layer_normalization
from npubake.graph.passes.normalise_gemm import normalise_gemm
from npubake.graph.passes.outcome import Declined, Outcome, Pass
from npubake.graph.passes.place_constant_factors import place_constant_factors
from npubake.graph.passes.replace_batch_normalization import replace_batch_normalization
from npubake.graph.passes.replace_constant_divisions import replace_constant_divisions
from npubake.graph.passes.replace_einsums import replace_einsums
from npubake.graph.passes.replace_sums import replace_sums
from npubake.graph.passes.split_shared_initializers import split_shared_initializers
from npubake.graph.passes.unfold_computed_convolutions import unfold_computed_convolutions

# Rounding a weight to float32 moves it by 2**-24 of itself; sums of some thousand products stay well below 1e-4.
_ROUNDED_WEIGHTS = 1e-4
# The same products in another order: some steps of float32 of the largest one.
_OTHER_SUMS = 1e-5

PASSES: tuple[Pass, ...] = (
    Pass(name="fold_constants", run=fold_constants, tolerance=1e-6),
    Pass(name="drop_empty_parts", run=drop_empty_parts, tolerance=0.0),
    Pass(name="drop_unread_outputs", run=drop_unread_outputs, tolerance=0.0),
    Pass(name="eliminate_identities", run=eliminate_identities, tolerance=0.0),
    Pass(name="replace_sums", run=replace_sums, tolerance=0.0),
    Pass(name="fold_pad", run=fold_pad, tolerance=1e-6),
    Pass(name="count_padding", run=count_padding, tolerance=1e-6),
    Pass(name="normalise_gemm", run=normalise_gemm, tolerance=_ROUNDED_WEIGHTS),
    Pass(name="unfold_computed_convolutions", run=unfold_computed_convolutions, tolerance=_OTHER_SUMS),
    Pass(name="replace_einsums", run=replace_einsums, tolerance=_OTHER_SUMS),
    Pass(name="place_constant_factors", run=place_constant_factors, tolerance=_OTHER_SUMS),
    Pass(name="fold_batch_normalization", run=fold_batch_normalization, tolerance=_ROUNDED_WEIGHTS),
    Pass(name="replace_batch_normalization", run=replace_batch_normalization, tolerance=_ROUNDED_WEIGHTS),
    Pass(name="fuse_layer_normalization", run=fuse_layer_normalization, tolerance=_ROUNDED_WEIGHTS),
    Pass(name="fuse_gelu", run=fuse_gelu, tolerance=1e-5),
    Pass(name="fuse_hard_swish", run=fuse_hard_swish, tolerance=1e-5),
    Pass(name="replace_constant_divisions", run=replace_constant_divisions, tolerance=1e-6),
    Pass(name="fold_affine", run=fold_affine, tolerance=_ROUNDED_WEIGHTS),
    Pass(name="clamp_mask_constants", run=clamp_mask_constants, tolerance=1e-6),
    Pass(name="add_bias", run=add_bias, tolerance=0.0),
    Pass(name="split_shared_initializers", run=split_shared_initializers, tolerance=0.0),
)

__all__ = ["PASSES", "Declined", "Outcome", "Pass"]
