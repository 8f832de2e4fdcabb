"""mAP of a digits detector on a labelled folder, measured on the ONNX file.

    python models/evaluate_digits_yolo.py --model models/digits_yolo_640.onnx

Letterbox by Pillow (bilinear, centred, grey 114), score threshold 0.001,
class-wise suppression at IoU 0.6, COCO average precision by pycocotools.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))

from letterbox import letterbox  # noqa: E402


def suppress(boxes: np.ndarray, scores: np.ndarray, limit: float) -> list[int]:
    """Indices kept by greedy suppression; boxes are corners."""
    order = np.argsort(-scores, kind="stable")
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order):
        first, rest = order[0], order[1:]
        kept.append(int(first))
        lt = np.maximum(boxes[first, :2], boxes[rest, :2])
        rb = np.minimum(boxes[first, 2:], boxes[rest, 2:])
        inter = np.clip(rb - lt, 0, None).prod(1)
        order = rest[inter / (area[first] + area[rest] - inter + 1e-9) <= limit]
    return kept


def detect(boxes: np.ndarray, scores: np.ndarray, threshold: float, limit: float, most: int):
    """Decode [4,A] boxes and [10,A] scores; return rows of (x1,y1,x2,y2,score,class)."""
    rows = []
    for digit in range(scores.shape[0]):
        chosen = np.nonzero(scores[digit] > threshold)[0]
        if len(chosen) > 1000:
            chosen = chosen[np.argsort(-scores[digit, chosen], kind="stable")[:1000]]
        cx, cy, w, h = boxes[:, chosen]
        corners = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], 1)
        kept = suppress(corners, scores[digit, chosen], limit)
        rows.extend((*corners[k].tolist(), float(scores[digit, chosen[k]]), digit) for k in kept)
    rows.sort(key=lambda row: -row[4])
    return rows[:most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(ROOT / "models" / "digits_yolo_640.onnx"))
    parser.add_argument("--data", default=str(ROOT / "data" / "digits" / "validation"))
    parser.add_argument("--threshold", type=float, default=0.001)
    parser.add_argument("--iou", type=float, default=0.6)
    parser.add_argument("--max-detections", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(args.model, options, providers=["CPUExecutionProvider"])
    folder = Path(args.data)
    labels = json.loads((folder / "labels.json").read_text())
    results, taken = [], []
    for entry in labels["images"]:
        with Image.open(folder / entry["file_name"]) as image:
            values, scale, left, top = letterbox(image.convert("RGB"), 640)
        x = np.ascontiguousarray(values.transpose(2, 0, 1)[None], dtype=np.float32) / np.float32(255)
        started = time.perf_counter()
        boxes, scores = session.run(["boxes", "scores"], {"images": x})
        taken.append(time.perf_counter() - started)
        found = detect(boxes[0], scores[0], args.threshold, args.iou, args.max_detections)
        for x1, y1, x2, y2, score, digit in found:
            x1, x2 = ((v - left) / scale for v in (x1, x2))
            y1, y2 = ((v - top) / scale for v in (y1, y2))
            x1, x2 = (min(max(v, 0.0), entry["width"]) for v in (x1, x2))
            y1, y2 = (min(max(v, 0.0), entry["height"]) for v in (y1, y2))
            box = [x1, y1, x2 - x1, y2 - y1]
            results.append({"image_id": entry["id"], "category_id": digit, "bbox": box, "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "labels.json"))
        judge = COCOeval(truth, truth.loadRes(results), "bbox")
        judge.params.maxDets = [1, 10, args.max_detections]
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    precision = judge.eval["precision"][0, :, :, 0, -1]
    each = [round(float(p[p > -1].mean()), 3) for p in precision.T]
    print(f"{args.model}: mAP@0.5 {judge.stats[1]:.4f}, mAP@0.5:0.95 {judge.stats[0]:.4f}")
    print(f"AP@0.5 of digits 0..9: {each}")
    print(f"median {np.median(taken) * 1e3:.1f} ms a picture, {args.threads} threads")


if __name__ == "__main__":
    main()
