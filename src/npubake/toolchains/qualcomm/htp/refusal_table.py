"""Qualcomm toolchain: what the compiler and the runtime say, what it means, what to do; a source a row. Data.

``{...}`` in a row's words are the pattern's named groups. Rows are tried in order; the first that fits speaks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_HERE = "seen with onnxruntime-qnn 2.7.0 (QNN 2.51.0)"
TO_THE_CPU = "or name it in toolchain_options.qualcomm.cpu_nodes"
# Layers that no CPU node replaces. Of most the layout is changed before the compiler is asked about them: refused then,
# they are lost ("inserted using the NHWC format"; each measured as a float layer on soc_model 93). At a Mish that is
# left to the CPU the provider crashes (soc_model 77).
NEVER_ON_THE_CPU = frozenset(
    {
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "GridSample",
        "InstanceNormalization",
        "LRN",
        "Mish",
        "Resize",
        "SpaceToDepth",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """pattern: what is said; because: what it means; do: what helps; source: who says so."""

    pattern: re.Pattern[str]
    because: str
    do: str
    source: str


def on_the_spot(op_type: str, do: str) -> str:
    """What to do about a layer, without the advice to leave it to the CPU where that is not taken."""
    return do.removesuffix(f"; {TO_THE_CPU}") if op_type in NEVER_ON_THE_CPU else do


def _row(pattern: str, because: str, do: str, source: str) -> Row:
    return Row(pattern=re.compile(pattern, re.DOTALL), because=because, do=do, source=source)


# Of one node: "node X (type) cannot run on Y because <because>"; do what.
REASONS: tuple[Row, ...] = (
    _row(
        r"The SocModel doesn't support FP16",
        "it computes in float, and the SoC has no float unit",
        "quantise it: a lane or override of integers, no float group; " + TO_THE_CPU,
        _HERE + ", soc_model 93; onnxruntime #18351",
    ),
    _row(
        r"has incorrect Value (?P<has>\d+), expected >= (?P<needs>\d+)",
        "these types of data need HTP v{needs}, and the SoC has v{has}",
        "a8w8 or a16w8 for this layer: 16-bit weights need v73",
        _HERE + ", 16-bit weights with soc_model 93",
    ),
    _row(
        r"has incorrect Rank (?P<rank>\d+)",
        "it works on tensors of {rank} dimensions, more than the HTP takes",
        "fold dimensions with a Reshape in the model; " + TO_THE_CPU,
        _HERE + ", Add of seven dimensions",
    ),
    _row(
        r"has incorrect (?P<fact>\w+ \S+?)[,.]",
        "the HTP does not take its {fact}",
        "change the layer or its precision in the recipe; " + TO_THE_CPU,
        _HERE + ": the validator's own words",
    ),
    _row(
        r"Cannot get shape",
        "a size of its input or output is not fixed",
        "state every size in the recipe: inputs.<name>.shape",
        _HERE + "; onnxruntime #25024",
    ),
    _row(
        r"Operators of type `DynamicQuantizeLinear`|DynamicQuantizeLinear",
        "it chooses scales while it runs, and the HTP needs them fixed",
        "give the float model: npubake calibrates it",
        "onnxruntime #25334",
    ),
    _row(
        r"Operators of type `(?P<type>.*?)` are not supported",
        "the HTP compiler has no operator {type}",
        "replace it with operators that it has; " + TO_THE_CPU,
        _HERE + ": Sinh, Celu, Mish, Shrink, Softsign, Acosh",
    ),
    _row(
        r"generated: could not create op",
        "the compiler makes no operator of it, or of a node beside it, in these types and sizes",
        "give it another precision (layer_overrides), or write it as other operators; " + TO_THE_CPU,
        _HERE + ", IsNaN before Where, and LSTM, of 8 bits with soc_model 93",
    ),
    _row(
        r"only supports? (?P<wants>.*?)(?: for now)?\.?$",
        "the compiler takes it only with {wants}",
        "change the layer as it says; " + TO_THE_CPU,
        _HERE + ", Mod with fmod 1: the provider's own words",
    ),
    _row(
        r"expects (?P<wants>[^.]*)",
        "the compiler expects {wants}",
        "change the layer as it says; " + TO_THE_CPU,
        _HERE + ": the provider's own words",
    ),
)

# What is said of a node in whose reasons nothing tells more.
FORMS: Mapping[str, str] = {
    "Gemm": "a fully connected layer of integers must leave as integers: its output needs a quantiser",
    "MatMul": "a fully connected layer of integers must leave as integers: its output needs a quantiser",
}

# How an operator that the compiler does not have is written with those that it has. Formulas: the ONNX operator pages.
REPLACEMENTS: Mapping[str, str] = {
    "Acosh": "Log(x + Sqrt(x * x - 1))",
    "Celu": "Elu, where alpha is 1; else alpha * (Exp(Min(x, 0) / alpha) - 1) + Relu(x)",
    "Mish": "x * Tanh(Softplus(x))",
    "Shrink": "Where with two comparisons",
    "Sinh": "(Exp(x) - Exp(-x)) / 2",
    "Softsign": "x / (1 + Abs(x))",
}

# Of the whole graph, or of the machinery: what is said -> what it means.
SESSIONS: tuple[Row, ...] = (
    _row(
        r"Unable to load backend",
        "a library of the HTP backend cannot be loaded: onnxruntime-qnn is not installed whole",
        "pip install --force-reinstall 'npubake[qualcomm]'; npubake doctor tells more",
        _HERE + ", without the libraries beside the package",
    ),
    _row(
        r"ended without an answer: SIGKILL",
        "its process was ended from outside, as this machine does where memory is short",
        "build again with more memory, or with fewer builds at once",
        "Linux: the kernel ends a process by SIGKILL where memory is short",
    ),
    _row(
        r"requires (?P<needs>0x[0-9a-fA-F]+) bytes of TCM, greater than the TCM size of (?P<has>0x[0-9a-fA-F]+)",
        "a part of it needs {needs} of vector memory at once, and the SoC has {has}",
        "make that layer's tensors smaller, or use the whole vector memory (no vtcm_mb)",
        "executorch #1430",
    ),
    _row(
        r"Operator named (?P<operator>\S+).{0,40}not sufficiently tiled to fit in TCM\. Requires (?P<needs>\d+) bytes",
        "the compiler's {operator} needs {needs} of vector memory at once, and cannot be split",
        "make the tensors of that kind of layer smaller: no row that large",
        _HERE + ", Softmax over 8 million elements",
    ),
    _row(
        r"Failed to finalize|\b1002\b|QNN_COMMON_ERROR_MEM_ALLOC",
        "the graph does not fit the SoC's vector memory, or this machine ran out of memory (1002)",
        "make the largest tensors smaller, or lower toolchain_options.qualcomm.optimization",
        "executorch #1430; QNN API error codes, 80-63442-10",
    ),
    _row(
        r"QNN_DEVICE_ERROR_INVALID_CONFIG",
        "the compiler has no HTP device for this soc_model",
        "correct soc_model in the platform file",
        _HERE + ", soc_model 9999 and 14",
    ),
    _row(
        r"invalid ort_version_supported",
        "the versions of onnxruntime and onnxruntime-qnn do not fit together",
        "install the locked ones: pip install -r requirements/qualcomm.lock",
        "onnxruntime-qnn #564, #492",
    ),
    _row(
        r"the file '?(?P<file>.*?)'? exists already",
        "a file {file} of an earlier compile is in the way",
        "remove it and its _qnn.bin; npubake compiles in an empty folder",
        _HERE,
    ),
    _row(
        r"ep_cache_context does not exist or is not accessible",
        "the wrapper's binary does not lie beside it",
        "keep model_ctx.onnx and model_ctx_qnn.bin together, under these names",
        _HERE,
    ),
    _row(
        r"Stub lib id mismatch|\b1008\b|INCOMPATIBLE_BINARIES",
        "the runtime's stub and skel libraries are of different versions (1008)",
        "put the libraries of one QAIRT version on the board: the contract lists them",
        "executorch #8762, onnxruntime #23171, #26163",
    ),
    _row(
        r"\b14001\b|QNN_DEVICE_ERROR|Failed to create device",
        "the HTP device cannot be opened (14001): skel library not found, or of another version",
        "set ADSP_LIBRARY_PATH to the folder of the skel library of the same QAIRT version",
        "executorch #2788, ai-hub-apps #158",
    ),
    _row(
        r"\b(?P<code>5000|5005)\b|QNN_CONTEXT_ERROR_CREATE_FROM_BINARY|Failed to get context binary info",
        "the binary cannot be loaded: it is damaged, or of another QNN version",
        "compare its sha256 with the manifest's and its build id with the runtime's; compile again",
        _HERE + "; onnxruntime #23431, foundry-local #244",
    ),
    _row(
        r"\b30010\b|no whole context binary",
        "the binary is cut off or no context binary (30010)",
        "compile again, or copy it again and compare its sha256 with the manifest's",
        _HERE,
    ),
    _row(
        r"\b(?P<code>6001|6031)\b|QNN_GRAPH_ERROR",
        "the graph fails where it runs: an operator that was accepted cannot be executed",
        "look for dynamic quantisation in the model; run the artifact in the emulator first",
        "onnxruntime #25334",
    ),
    _row(
        r"Unsupported HTP arch (?P<arch>\d+)",
        "the binary is for another HTP architecture than v{arch}",
        "build the target of this board, or one platform of several SoCs (qcs9075+qcs8275)",
        "executorch #4973, #1176",
    ),
    _row(
        r"No runnable cache selected",
        "the binary is for several SoCs, and the emulator opens none such",
        "run the target of one of these SoCs",
        _HERE + ", soc_model 77,82",
    ),
    _row(
        r"\b1004\b|INVALID_ARGUMENT",
        "the compiler was given an argument that it does not take (1004)",
        "report this with the log: npubake checks options before",
        "QNN API error codes, 80-63442-10",
    ),
    _row(
        r"\b1000\b|ERROR_NOT_SUPPORTED",
        "what was asked for is not supported by this QNN version (1000)",
        "use the locked version of onnxruntime-qnn",
        "QNN API error codes, 80-63442-10",
    ),
    _row(
        r"Encountered an invalid node while compiling",
        "an operator that ONNX defines by others was expanded in the middle of the compile",
        "replace it with the operators of its definition in the model",
        _HERE + ", Mish",
    ),
    _row(
        r"inserted using the NHWC format|\b3110\b|0xc26",
        "the HTP refuses a layer's combination of types and sizes (3110) and does not say which",
        "try the lane a8w8 for it; the log names what was validated",
        _HERE + "; onnxruntime #26845, #18351",
    ),
    _row(
        r"assigned to the default CPU EP",
        "a node would stay on the CPU, and the compiler does not say which",
        "see the log; check the model's operators against the list of the QNN execution provider",
        _HERE + "; onnxruntime-qnn #715, #593",
    ),
)
