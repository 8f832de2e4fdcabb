"""Make decoder_block.onnx, one decoder block of a language model with a key and value cache, and its calibration data.

    python models/make_decoder_block.py

Nothing is trained: weights and token embeddings are drawn from a seed, so that the same numpy writes the same bytes.
The text is this project's LICENSE, one token a character. An example is a call in the middle of it: the embeddings of
SEQUENCE characters, and the keys and values of up to CACHE characters before them, as the block itself computes them.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "decoder_block.onnx"
DATA = ROOT / "data" / "decoder_block" / "calibration.npz"

SEQUENCE, CACHE, HEADS, DEPTH, WIDTH, INNER, TOKENS = 8, 24, 2, 16, 32, 64, 96
TOTAL = SEQUENCE + CACHE
EXAMPLES = 48
MASKED = -10000.0  # what a position that must not be seen adds to its score
EPSILON = 1e-5
Arrays = dict[str, NDArray[np.float32]]


def weights() -> Arrays:
    """All constants by name, float32; matrices [inputs, outputs]."""
    generator = np.random.Generator(np.random.PCG64(20240229))

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return (generator.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    made = {f"{name}.weight": matrix(WIDTH, WIDTH) for name in ("query", "key", "value", "attention_output")}
    made |= {f"{name}.bias": (0.1 * generator.standard_normal(WIDTH)).astype(np.float32) for name in ("query", "key")}
    made |= {
        "gate.weight": matrix(WIDTH, INNER),
        "up.weight": matrix(WIDTH, INNER),
        "down.weight": matrix(INNER, WIDTH),
    }
    made["head.weight"] = matrix(WIDTH, TOKENS)
    for norm in ("attention_norm", "ffn_norm", "head_norm"):
        made[f"{norm}.scale"] = (1 + 0.2 * generator.standard_normal(WIDTH)).astype(np.float32)
        made[f"{norm}.bias"] = (0.1 * generator.standard_normal(WIDTH)).astype(np.float32)
    # rotary positions: angle = position / 10000^(2 i / DEPTH), each angle for both halves of a head
    angles = np.outer(np.arange(TOTAL), 10000.0 ** (-np.arange(0, DEPTH, 2) / DEPTH))
    made["cosines"] = np.cos(np.hstack([angles, angles])).astype(np.float32)
    made["sines"] = np.sin(np.hstack([angles, angles])).astype(np.float32)
    return made


class Graph:
    """Nodes in order; each call adds one and answers the name of what it makes."""

    def __init__(self, constants: Arrays) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[np.generic]] = dict(constants)

    def add(self, operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"/{output}/{operator}", **attributes))
        return output

    def numbers(self, name: str, values: list[int]) -> str:
        self.constants[name] = np.array(values, dtype=np.int64)
        return name

    def linear(self, source: str, name: str) -> str:
        bias = f"{name}.bias" in self.constants
        product = self.add("MatMul", [source, f"{name}.weight"], f"{name}_product" if bias else name)
        return self.add("Add", [product, f"{name}.bias"], name) if bias else product

    def norm(self, source: str, name: str) -> str:
        inputs = [source, f"{name}.scale", f"{name}.bias"]
        return self.add("LayerNormalization", inputs, name, axis=-1, epsilon=EPSILON)

    def heads(self, source: str) -> str:
        """[1, SEQUENCE, WIDTH] -> [1, HEADS, SEQUENCE, DEPTH]."""
        shape = self.numbers("heads_shape", [1, SEQUENCE, HEADS, DEPTH])
        split = self.add("Reshape", [source, shape], f"{source}_split")
        return self.add("Transpose", [split], f"{source}_heads", perm=[0, 2, 1, 3])

    def rotated(self, source: str) -> str:
        """Rotary positions: x cos + (-second half, first half) sin."""
        half, axis = DEPTH // 2, self.numbers("last_axis", [3])
        start, middle, end = (self.numbers(f"at_{at}", [at]) for at in (0, half, DEPTH))
        first = self.add("Slice", [source, start, middle, axis], f"{source}_first")
        second = self.add("Slice", [source, middle, end, axis], f"{source}_second")
        turned = self.add("Neg", [second], f"{source}_negated")
        turned = self.add("Concat", [turned, first], f"{source}_turned", axis=3)
        straight = self.add("Mul", [source, "cosine"], f"{source}_cosine")
        across = self.add("Mul", [turned, "sine"], f"{source}_sine")
        return self.add("Add", [straight, across], f"{source}_rotated")


def attention(graph: Graph, source: str) -> str:
    """Attention over the cache and the sequence itself; adds present_key and present_value."""
    unsqueezed = graph.numbers("head_axis", [1])
    for table, name in (("cosines", "cosine"), ("sines", "sine")):
        rows = graph.add("Gather", [table, "positions"], f"{name}_rows", axis=0)
        graph.add("Unsqueeze", [rows, unsqueezed], name)
    query, key = (graph.rotated(graph.heads(graph.linear(source, name))) for name in ("query", "key"))
    value = graph.heads(graph.linear(source, "value"))
    graph.add("Concat", ["past_key", key], "present_key", axis=2)
    graph.add("Concat", ["past_value", value], "present_value", axis=2)
    turned = graph.add("Transpose", ["present_key"], "keys_turned", perm=[0, 1, 3, 2])
    products = graph.add("MatMul", [query, turned], "products")
    graph.constants["scale"] = np.float32(1 / np.sqrt(DEPTH))
    scores = graph.add("Mul", [products, "scale"], "scores")
    seen = graph.add("Add", [scores, "mask"], "scores_seen")
    shares = graph.add("Softmax", [seen], "shares", axis=-1)
    mixed = graph.add("MatMul", [shares, "present_value"], "mixed")
    joined = graph.add("Transpose", [mixed], "mixed_turned", perm=[0, 2, 1, 3])
    flat = graph.add("Reshape", [joined, graph.numbers("flat_shape", [1, SEQUENCE, WIDTH])], "mixed_flat")
    return graph.linear(flat, "attention_output")


def feed_forward(graph: Graph, source: str) -> str:
    """Gated: down(SiLU(gate x) * up x)."""
    gate = graph.linear(source, "gate")
    curve = graph.add("Sigmoid", [gate], "gate_sigmoid")
    opened = graph.add("Mul", [gate, curve], "gate_silu")
    return graph.linear(graph.add("Mul", [opened, graph.linear(source, "up")], "gated"), "down")


def model(constants: Arrays) -> onnx.ModelProto:
    graph = Graph(constants)
    attended = attention(graph, graph.norm("embeddings", "attention_norm"))
    middle = graph.add("Add", ["embeddings", attended], "middle")
    after = graph.add("Add", [middle, feed_forward(graph, graph.norm(middle, "ffn_norm"))], "after")
    graph.add("MatMul", [graph.norm(after, "head_norm"), "head.weight"], "logits")
    cache, grown = [1, HEADS, CACHE, DEPTH], [1, HEADS, TOTAL, DEPTH]
    inputs = {
        "embeddings": [1, SEQUENCE, WIDTH],
        "positions": [1, SEQUENCE],
        "mask": [1, 1, SEQUENCE, TOTAL],
        "past_key": cache,
        "past_value": cache,
    }
    outputs = {"logits": [1, SEQUENCE, TOKENS], "present_key": grown, "present_value": grown}
    kinds = {"positions": TensorProto.INT64}
    made = helper.make_graph(
        graph.nodes,
        "decoder_block",
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), size)
            for name, size in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in graph.constants.items()],
    )
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="npubake")
    onnx.checker.check_model(whole, full_check=True)
    return whole


def data(constants: Arrays) -> dict[str, NDArray[np.generic]]:
    """EXAMPLES calls; the cache of the first is empty, of every fourth one partly filled, else full."""
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    tokens = np.array([ord(letter) - 32 for letter in text if 32 <= ord(letter) < 32 + TOKENS])
    table = np.random.Generator(np.random.PCG64(17)).standard_normal((TOKENS, WIDTH))
    rows: dict[str, list[NDArray[np.generic]]] = {}
    for index in range(EXAMPLES):
        filled = 0 if index == 0 else CACHE // 2 if index % 4 == 0 else CACHE
        start = CACHE + index * (len(tokens) - TOTAL) // EXAMPLES
        keys, values = past(table[tokens[start - filled : start]], constants)
        example = {
            "embeddings": table[tokens[start : start + SEQUENCE]].astype(np.float16),
            "positions": np.arange(filled, filled + SEQUENCE),
            "mask": mask(filled),
            "past_key": keys,
            "past_value": values,
        }
        for name, value in example.items():
            rows.setdefault(name, []).append(value)
    return {name: np.stack(values) for name, values in rows.items()}


def past(embeddings: NDArray[np.float64], constants: Arrays) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Keys (rotated) and values of tokens at positions 0, 1, ...: [HEADS, CACHE, DEPTH], zeros behind the last."""
    centred = embeddings - embeddings.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
    normed = scaled * constants["attention_norm.scale"] + constants["attention_norm.bias"]
    made = []
    for name in ("key", "value"):
        flat = np.einsum("tw,wo->to", normed, constants[f"{name}.weight"].astype(np.float64))
        flat = flat + constants.get("key.bias", 0) if name == "key" else flat
        heads = flat.reshape(-1, HEADS, DEPTH).transpose(1, 0, 2)
        if name == "key":
            turned = np.concatenate([-heads[..., DEPTH // 2 :], heads[..., : DEPTH // 2]], axis=-1)
            heads = heads * constants["cosines"][: len(flat)] + turned * constants["sines"][: len(flat)]
        held = np.zeros((HEADS, CACHE, DEPTH), dtype=np.float16)
        held[:, : len(flat)] = heads
        made.append(held)
    return made[0], made[1]


def mask(filled: int) -> NDArray[np.float16]:
    """[1, SEQUENCE, TOTAL]: a token sees what is in the cache, itself and what stands before it in the sequence."""
    seen = np.zeros((SEQUENCE, TOTAL), dtype=bool)
    seen[:, :filled] = True
    seen[:, CACHE:] = np.tri(SEQUENCE, dtype=bool)
    return np.where(seen, 0.0, MASKED).astype(np.float16)[None]


def save_npz(path: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    """An npz whose bytes do not hold the time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, value in arrays.items():
            held = io.BytesIO()
            np.lib.format.write_array(held, np.ascontiguousarray(value))
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), held.getvalue())


def main() -> None:
    constants = weights()
    MODEL.write_bytes(model(constants).SerializeToString(deterministic=True))
    save_npz(DATA, data(constants))
    print(f"{MODEL.name}: {MODEL.stat().st_size} bytes; {DATA.name}: {DATA.stat().st_size} bytes")


if __name__ == "__main__":
    main()
