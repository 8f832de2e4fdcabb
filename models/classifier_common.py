"""Training, export and measurement shared by the two digit classifiers."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))

from digit_pool import load_split  # noqa: E402


def augment(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random rotation (12 degrees), scale (10 %) and shift (2 px)."""
    n = len(batch)
    angle = (torch.rand(n, generator=generator) * 2 - 1) * math.radians(12)
    scale = 1 + (torch.rand(n, generator=generator) * 2 - 1) * 0.1
    shift = (torch.rand(n, 2, generator=generator) * 2 - 1) * (2 / 14)
    cos, sin = torch.cos(angle) * scale, torch.sin(angle) * scale
    theta = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = F.affine_grid(theta, list(batch.shape), align_corners=False)
    return F.grid_sample(batch, grid, align_corners=False)


def train(model: nn.Module, tarball: str, epochs: int, lr: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images, labels = load_split(tarball, "train")
    x = torch.from_numpy(images).float().div(255)[:, None]
    y = torch.from_numpy(labels)
    batch = 128
    steps = epochs * math.ceil(len(x) / batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.15)
    started = time.time()
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for index in torch.randperm(len(x), generator=generator).split(batch):
            loss = F.cross_entropy(model(augment(x[index], generator)), y[index], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(index)
        print(f"epoch {epoch + 1}: loss {total / len(x):.4f} ({time.time() - started:.0f} s)", flush=True)
    model.eval()


def export(model: nn.Module, path: str) -> None:
    """Write a static opset 17 graph with the TorchScript exporter."""
    torch.onnx.export(
        model.eval(),
        (torch.zeros(1, 1, 28, 28),),
        path,
        input_names=["image"],
        output_names=["logits"],
        opset_version=17,
        training=torch.onnx.TrainingMode.EVAL,
        do_constant_folding=False,
        dynamo=False,
    )
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    kinds: dict[str, int] = {}
    for node in graph.graph.node:
        kinds[node.op_type] = kinds.get(node.op_type, 0) + 1
    print(f"{path}: {Path(path).stat().st_size} bytes, nodes {kinds}")


def measure(model: nn.Module, path: str) -> float:
    """Top-1 of the exported graph on data/digits_cls/validation.npz."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    data = np.load(ROOT / "data" / "digits_cls" / "validation.npz")
    right, difference = 0, 0.0
    for image, label in zip(data["images"], data["labels"], strict=True):
        (logits,) = session.run(None, {"image": image[None]})
        with torch.no_grad():
            reference = model(torch.from_numpy(image[None])).numpy()
        difference = max(difference, float(np.abs(reference - logits).max()))
        right += int(logits.argmax() == label)
    count = len(data["labels"])
    print(f"{path}: top-1 {right}/{count} = {right / count:.4f}, max |onnx - torch| {difference:.2e}")
    return right / count
