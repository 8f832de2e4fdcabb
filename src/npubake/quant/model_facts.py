"""quant: constants and numeric attributes of a model, as plain data. An onnx model enters, ``ModelFacts`` leave."""

from __future__ import annotations

import onnx
from onnx import AttributeProto, helper, numpy_helper

from npubake.quant.operands import ModelFacts

_NUMERIC = (AttributeProto.INT, AttributeProto.FLOAT)


def model_facts(model: onnx.ModelProto) -> ModelFacts:
    """What ``assign`` and the QDQ writer read of ``model`` beside its summary."""
    return ModelFacts(
        initializers={tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer},
        attributes={
            node.name: {
                entry.name: helper.get_attribute_value(entry) for entry in node.attribute if entry.type in _NUMERIC
            }
            for node in model.graph.node
        },
    )
