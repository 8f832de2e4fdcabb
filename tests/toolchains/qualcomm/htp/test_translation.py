"""The compiler's and the runtime's messages in words: recorded ones, and those of the issues that report them."""

from __future__ import annotations

import pytest

from npubake.toolchains.qualcomm.facts import HtpPlatform
from npubake.toolchains.qualcomm.htp.operators import Operators
from npubake.toolchains.qualcomm.htp.refusal_table import REASONS, SESSIONS
from npubake.toolchains.qualcomm.htp.trace import Unsupported, read_trace
from npubake.toolchains.qualcomm.htp.translation import (
    explain_failure,
    explain_nodes,
    explain_refusal,
    explain_text,
    log_text,
)
from tests.toolchains.qualcomm import compiler_words as words

V68 = HtpPlatform(name="qcs6490", soc_models=(93,), arch=("v68",), vtcm_bytes=2 << 20, precisions=(), lanes=())


def told(error: str, log: tuple[str, ...], curve: str = "Sigmoid") -> list[str]:
    operators = Operators.of(words.small_model(curve))
    trace = read_trace("", (error, *log), operators)
    return [str(fault) for fault in explain_failure(error, log, trace, operators, V68)]


def test_float_on_a_soc_without_it() -> None:
    first, second = told(words.ERROR_NHWC, words.LOG_FLOAT_ON_V68)
    assert "node stem (Conv) cannot run on qcs6490 (HTP v68) because it computes in float" in first
    assert "node curve (Sigmoid)" in second
    assert "the end of the compiler's log" in second
    assert "File mapped weights" not in second
    assert "cpu_nodes" not in first  # its layout was changed before it was refused: no CPU node takes its place
    one = Unsupported(node="curve", op_type="Sigmoid", reasons=("The SocModel doesn't support FP16",))
    assert "cpu_nodes" in explain_nodes([one], Operators.of(words.small_model()), V68)[0].hint
    lines = [line for line in second.splitlines() if line.startswith("[")]
    assert lines
    assert len(lines) == len(set(lines))


def test_weights_of_16_bits_on_v68() -> None:
    (fault,) = told(words.ERROR_NHWC, words.LOG_WIDE_WEIGHTS)
    assert "need HTP v73, and the SoC has v68" in fault


def test_a_function_of_onnx() -> None:
    (fault,) = told(words.ERROR_FUNCTION, words.LOG_MISH, "Mish")
    assert "no operator Mish" in fault
    assert "x * Tanh(Softplus(x))" in fault


def test_too_little_vector_memory() -> None:
    (fault,) = told(words.ERROR_MEMORY, words.LOG_MEMORY)
    assert "q::*InputSlice needs 30.5 MiB of vector memory" in fault


def test_a_node_that_is_lost_as_the_graph_is_made() -> None:
    (fault,) = told(words.ERROR_MEMORY, words.LOG_UNMADE)
    assert "node curve (Sigmoid) cannot run on qcs6490 (HTP v68) because the compiler makes no operator of it" in fault
    assert "vector memory" not in fault.partition("the end of the compiler's log")[0]
    assert "cpu_nodes" in fault


def test_what_the_provider_takes_only_in_part() -> None:
    one = Unsupported(node="curve", op_type="Mod", reasons=("QNN Mod Op only support fmod == 0 for now.",))
    (fault,) = explain_nodes([one], Operators.of(words.small_model()), V68)
    assert "because the compiler takes it only with fmod == 0" in fault.what
    assert "precision" not in fault.hint


def test_a_node_of_which_nothing_is_said() -> None:
    (fault,) = told(words.ERROR_NHWC, ())
    assert "node stem (Conv)" in fault
    assert "inputs uint8, int8" in fault


def test_sizes_that_are_open() -> None:
    one = Unsupported(node="stem", op_type="Conv", reasons=("Cannot get shape",))
    (fault,) = explain_nodes([one], Operators.of(words.small_model()), V68)
    assert "is not fixed (x: N, y: N)" in fault.what
    assert "inputs.<name>.shape" in fault.hint


def test_an_operator_that_quantises_while_it_runs() -> None:
    reason = "Operators of type `DynamicQuantizeLinear` are not supported by QNN EP."
    one = Unsupported(node="curve", op_type="DynamicQuantizeLinear", reasons=(reason,))
    (fault,) = explain_nodes([one], Operators.of(words.small_model()), V68)
    assert "chooses scales while it runs" in fault.what
    assert "float model" in fault.hint


def test_a_failure_that_no_row_knows_keeps_the_compilers_words() -> None:
    (fault,) = told("[ONNXRuntimeError] : 1 : FAIL : flux capacitor missing\nmore", ("[E] a line",))
    assert "flux capacitor missing" in fault
    assert "[E] a line" in fault


# Message (from the issue or the compile that is named) -> words of its meaning.
MESSAGES = {
    "[W] No runnable cache selected": "emulator opens none such",
    # executorch #1430
    "requires 0x2400000 bytes of TCM, greater than the TCM size of 0x800000": "36.0 MiB of vector memory at once, and "
    "the SoC has 8.0 MiB",
    "Failed to finalize graph err 1002": "(1002)",
    words.ERROR_MEMORY: "(1002)",
    # seen here: soc_model 9999
    "QNN SetupBackend failed Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config values": ""
    "no HTP device for this soc_model",
    # onnxruntime-qnn #564
    "OrtEp has invalid ort_version_supported=0 (expected at least 22)": "do not fit together",
    "QNN SetupBackend failed Unable to load backend, error:  libc++.so.1: cannot open shared object": "installed whole",
    "python -m npubake.toolchains.qualcomm.htp.htp_compiler ended without an answer: SIGKILL": "memory is short",
    # seen here
    "Failed to generate EP context model since the file 'model_ctx.onnx' exists already. Please remove the EP context "
    "model if you want to re-generate it.": "a file model_ctx.onnx of an earlier compile",
    "INVALID_GRAPH : Failed to load from EpContext model. The file path in ep_cache_context does not exist or is not "
    "accessible.": "binary does not lie beside it",
    # executorch #8762
    "Stub lib id mismatch: expected (v2.28.0), detected (v2.25.0)": "different versions (1008)",
    "error code 1008": "(1008)",
    # executorch #2788
    "Failed to create device_handle for Backend ID 6, error=14001": "cannot be opened (14001)",
    # onnxruntime #23431, foundry-local #244
    "Failed to create context from binary. Error code: 5005": "cannot be loaded",
    "contextCreateFromBinary failed. Error: QNN_CONTEXT_ERROR_CREATE_FROM_BINARY": "cannot be loaded",
    "Failed to get context binary info": "cannot be loaded",
    "QNN error 30010": "cut off",
    # onnxruntime #25334
    "QNN graph execute error. Error code: 6031": "fails where it runs",
    "graphExecute failed: 6001": "fails where it runs",
    # executorch #4973
    "Unsupported HTP arch 73 from device custom config": "another HTP architecture than v73",
    "error 1004": "(1004)",
    "error 1000": "(1000)",
    words.ERROR_FUNCTION: "was expanded in the middle",
    words.ERROR_NHWC: "(3110)",
    words.ERROR_CPU: "would stay on the CPU",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_session(message: str) -> None:
    meaning = explain_text(message)
    assert meaning is not None
    assert MESSAGES[message] in meaning[0]
    assert meaning[1]


def test_that_every_row_is_reached_by_a_message() -> None:
    reached = [next(row for row in SESSIONS if row.pattern.search(text)) for text in (*MESSAGES, *words.LOG_MEMORY[:1])]
    assert {row.because for row in SESSIONS} == {row.because for row in reached}


@pytest.mark.parametrize("row", [*REASONS, *SESSIONS], ids=lambda row: row.pattern.pattern[:30])
def test_that_each_row_says_what_to_do_and_who_says_so(row: object) -> None:
    assert all(getattr(row, field) for field in ("because", "do", "source"))


def test_that_unknown_text_means_nothing() -> None:
    assert explain_text("all is well") is None


def test_that_the_log_is_kept_whole() -> None:
    assert log_text(("one", "two")) == "one\ntwo\n"


def test_an_artifact_that_the_emulator_does_not_open() -> None:
    error = "[ONNXRuntimeError] : 1 : FAIL : Failed to load from EpContext model. QNN_CONTEXT_ERROR_CREATE_FROM_BINARY"
    fault = explain_refusal(error, ["[E] a line"], "model_ctx.onnx")
    assert fault.where == "model_ctx.onnx"
    assert fault.what == (
        "the emulator refuses the artifact: the binary cannot be loaded: it is damaged, or of another QNN version"
    )
    assert "compare its sha256" in fault.hint
    assert "the end of the emulator's log:\n[E] a line\nFailed to load" in fault.hint


def test_an_artifact_that_the_emulator_refuses_in_words_nobody_knows() -> None:
    fault = explain_refusal("[ONNXRuntimeError] : 1 : FAIL : out of luck", [], "model_ctx.onnx")
    assert fault.what == "the emulator refuses the artifact: out of luck"
    assert "compile it again" in fault.hint
