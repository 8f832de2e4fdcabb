"""The benchmark's pictures: two sides, ``calibration`` and ``held_out``, that share no photograph, page, text or font.

Photographs come from wheels and from the committed pictures of ``data/digits``; pages and lines of text are drawn
here from docstrings of one package in the fonts of one side. Everything follows from a seed.
"""

from __future__ import annotations

import ast
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from wheels import Wheels

Side = Literal["calibration", "held_out"]
DATA = Path(__file__).resolve().parent.parent / "data"
SKIMAGE = "scikit-image"

PHOTOGRAPHS: dict[Side, tuple[str, ...]] = {
    "calibration": (
        "astronaut.png",
        "rocket.jpg",
        "camera.png",
        "coins.png",
        "hubble_deep_field.jpg",
        "retina.jpg",
        "gravel.png",
        "brick.png",
    ),
    "held_out": ("chelsea.png", "coffee.png", "motorcycle_left.png", "moon.png", "clock_motion.png", "grass.png"),
}
MORE_PHOTOGRAPHS: dict[Side, str] = {
    "calibration": "sklearn/datasets/images/flower.jpg",
    "held_out": "sklearn/datasets/images/china.jpg",
}
PICTURES: dict[Side, str] = {"calibration": "calibration", "held_out": "validation"}  # in data/digits, by photograph
SCANS: dict[Side, str] = {"calibration": "text.png", "held_out": "page.png"}
FONTS: dict[Side, tuple[str, ...]] = {
    "calibration": ("DejaVuSans", "DejaVuSerif-Bold", "STIXGeneral", "DejaVuSansMono-Oblique", "cmr10", "cmss10"),
    "held_out": ("DejaVuSans-Bold", "DejaVuSerif-Italic", "STIXGeneralBol", "DejaVuSansMono", "cmb10", "cmtt10"),
}
TEXTS: dict[Side, tuple[str, str]] = {
    "calibration": (SKIMAGE, "skimage/"),
    "held_out": ("scikit-learn", "sklearn/"),
}
SEEDS: dict[Side, int] = {"calibration": 3001, "held_out": 3002}
WORDS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """One side: its photographs, its scanned page, its words and its fonts (file contents)."""

    side: Side
    photographs: tuple[Image.Image, ...]
    scan: Image.Image
    words: tuple[str, ...]
    fonts: tuple[bytes, ...]

    def generator(self, purpose: int) -> np.random.Generator:
        """A generator of its own for each use, so that one use does not move another."""
        return np.random.default_rng([SEEDS[self.side], purpose])


def gallery(wheels: Wheels, side: Side) -> Gallery:
    photographs = [wheels.image(SKIMAGE, f"skimage/data/{name}") for name in PHOTOGRAPHS[side]]
    photographs.append(wheels.image("scikit-learn", MORE_PHOTOGRAPHS[side]))
    fonts = (f"matplotlib/mpl-data/fonts/ttf/{name}.ttf" for name in FONTS[side])
    return Gallery(
        side=side,
        photographs=(*photographs, *committed_photographs(side)),
        scan=wheels.image(SKIMAGE, f"skimage/data/{SCANS[side]}"),
        words=docstring_words(wheels, *TEXTS[side]),
        fonts=tuple(wheels.read("matplotlib", name) for name in fonts),
    )


def committed_photographs(side: Side) -> list[Image.Image]:
    """The first committed picture of each photograph that no wheel above gave, digits and all."""
    folder = DATA / "digits" / PICTURES[side]
    rows = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["images"]
    known = {Path(name).stem for names in (*PHOTOGRAPHS.values(), MORE_PHOTOGRAPHS.values()) for name in names}
    first: dict[str, str] = {}
    for row in rows:
        if row["photograph"] not in known:
            first.setdefault(row["photograph"], row["file_name"])
    return [Image.open(folder / name).convert("RGB") for name in first.values()]


def docstring_words(wheels: Wheels, package: str, folder: str) -> tuple[str, ...]:
    """The first words of the docstrings of a package's modules, in order of path."""
    words: list[str] = []
    for name in sorted(wheels.names(package)):
        if name.startswith(folder) and name.endswith(".py") and "/tests/" not in name and len(words) < WORDS:
            tree = ast.parse(wheels.read(package, name).decode("utf-8"))
            texts = [ast.get_docstring(node) or "" for node in (tree, *tree.body) if isinstance(node, DOCUMENTED)]
            words += re.findall(r"[A-Za-z0-9][\w.,:;()'-]*", " ".join(texts))
    return tuple(words[:WORDS])


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def photograph_crops(source: Gallery, count: int, size: int) -> list[Image.Image]:
    """Square crops that hold most of a photograph, each photograph in turn."""
    generator, crops = source.generator(1), []
    for index in range(count):
        image = source.photographs[index % len(source.photographs)]
        side = min(image.size) * generator.uniform(0.7, 1.0)
        left, top = generator.uniform(0, image.width - side), generator.uniform(0, image.height - side)
        box = (left, top, left + side, top + side)
        crop = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
        crops.append(crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if generator.random() < 0.5 else crop)
    return crops


def pages(source: Gallery, count: int, size: tuple[int, int], purpose: int) -> list[Image.Image]:
    """Pages of text, ``size`` (width, height): one in eight a crop of the scanned page, the others drawn."""
    generator = source.generator(purpose)
    return [
        scan_crop(source, generator, size) if index % 8 == 0 else drawn_page(source, generator, size)
        for index in range(count)
    ]


def scan_crop(source: Gallery, generator: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    height = min(source.scan.height, source.scan.width * size[1] / size[0]) * generator.uniform(0.8, 1.0)
    width = height * size[0] / size[1]
    left, top = (
        generator.uniform(0, source.scan.width - width),
        generator.uniform(0, source.scan.height - height),
    )
    return source.scan.resize(size, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))


def drawn_page(source: Gallery, generator: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    """Lines of text of one to three sizes on paper or on a photograph, a little turned, blurred and noisy."""
    image, dark = paper(source, generator, size)
    draw = ImageDraw.Draw(image)
    top = generator.uniform(0.02, 0.12) * size[1]
    while top < 0.95 * size[1]:
        font = chosen_font(source, generator, int(generator.integers(14, 36)))
        left = generator.uniform(0.02, 0.15) * size[0]
        for _ in range(int(generator.integers(2, 6))):
            draw.text((left, top), phrase(source, generator, 0.8 * size[0], font), fill=ink(generator, dark), font=font)
            top += 1.3 * font.size
        top += generator.uniform(0.3, 2.0) * font.size
    filling = tuple(int(value) for value in np.asarray(image).reshape(-1, 3).mean(0))
    turned = image.rotate(generator.normal(0, 1.5), Image.Resampling.BILINEAR, fillcolor=filling)
    return worn(turned, generator)


def lines(source: Gallery, count: int, purpose: int) -> list[Image.Image]:
    """Single lines of text as a text detector cuts them out: 32 to 64 pixels high, of any length."""
    generator, found = source.generator(purpose), []
    for _ in range(count):
        height = int(generator.integers(32, 65))
        font = chosen_font(source, generator, int(height * 0.62))
        text = phrase(source, generator, generator.uniform(2.0, 9.0) * height, font)
        width = max(height, int(font.getlength(text) + 0.4 * height))
        image, dark = paper(source, generator, (width, height))
        ImageDraw.Draw(image).text((0.2 * height, 0.14 * height), text, fill=ink(generator, dark), font=font)
        found.append(worn(image, generator))
    return found


def paper(source: Gallery, generator: np.random.Generator, size: tuple[int, int]) -> tuple[Image.Image, bool]:
    """A background, and whether it is dark: plain colour, or part of a photograph with its contrast lowered."""
    level = generator.uniform(0, 60) if generator.random() < 0.25 else generator.uniform(170, 255)
    plain = np.clip(level + generator.normal(0, 8, 3), 0, 255)
    canvas = np.broadcast_to(plain, (size[1], size[0], 3))
    if generator.random() < 0.4:
        photograph = source.photographs[int(generator.integers(len(source.photographs)))].resize(size)
        canvas = 0.75 * canvas + 0.25 * np.asarray(photograph, dtype=np.float64)
    return Image.fromarray(canvas.astype(np.uint8)), level < 128


def ink(generator: np.random.Generator, dark: bool) -> tuple[int, ...]:
    low, high = (190, 256) if dark else (0, 70)
    return tuple(int(value) for value in generator.integers(low, high, 3))


def chosen_font(source: Gallery, generator: np.random.Generator, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(io.BytesIO(source.fonts[int(generator.integers(len(source.fonts)))]), size)


def phrase(source: Gallery, generator: np.random.Generator, width: float, font: ImageFont.FreeTypeFont) -> str:
    """Words that follow each other in the text, as many as fit into ``width`` pixels, at least one."""
    start = int(generator.integers(len(source.words) - 60))
    text = source.words[start]
    for word in source.words[start + 1 : start + 60]:
        if font.getlength(f"{text} {word}") > width:
            break
        text = f"{text} {word}"
    return text


def worn(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """A little blur, then a little noise."""
    blurred = image.filter(ImageFilter.GaussianBlur(generator.uniform(0.0, 0.9)))
    noise = generator.normal(0, generator.uniform(0, 6), (image.height, image.width, 3))
    return Image.fromarray(np.clip(np.asarray(blurred) + noise, 0, 255).astype(np.uint8))
