"""What each lane costs in accuracy on the shipped detector: mAP@0.5 and SQNR of float, a8w8, a16w8 and fp16_a8w8.

    python benchmarks/lanes.py [--count 2000 --sources FOLDER]

With --count, the product metric is judged on so many pictures made by data/generate_digits.py (validation split, seed
2000) instead of the 100 committed ones; ``data/fetch_sources.py`` makes FOLDER. Prints a table and paired intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LANES = ("a8w8", "a16w8", "fp16_a8w8")
RECIPE = """\
extends: yolo_640.yaml
quant_config: {{lane: {lane}}}
gates: {{quantized: {{cosine: 0.5, sqnr_db: 1}}}}
metric: {{name: coco_map, data: {data}, max_drop: 0.5}}
platform: generic
"""


def main() -> None:
    """Build every lane in a copy of the project and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--sources", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        for part in ("recipes", "platforms", "models", "data"):
            shutil.copytree(ROOT / part, project / part)
        data = "../data/digits/validation"
        if asked.count:
            data = "../generated"
            generate(project, asked.sources, asked.count)
        for lane in LANES:
            (project / "recipes" / f"{lane}.yaml").write_text(RECIPE.format(lane=lane, data=data))
        report(project)


def generate(project: Path, sources: Path | None, count: int) -> None:
    """More pictures of the validation split."""
    if sources is None:
        sys.exit("--count needs --sources (made by data/fetch_sources.py)")
    options = ["--sources", str(sources), "--split", "validation", "--seed", "2000", "--count", str(count)]
    command = [sys.executable, str(ROOT / "data" / "generate_digits.py"), *options, "--out", str(project / "generated")]
    subprocess.run(command, check=True)


def report(project: Path) -> None:
    """Build, then a row a lane."""
    command = [sys.executable, "-m", "npubake", "build", *LANES, "--quiet", "--json"]
    done = subprocess.run(command, cwd=project, env=dict(os.environ), check=True, capture_output=True, text=True)
    targets = json.loads(done.stdout)["targets"]
    first = targets[LANES[0]]["metrics"]["coco_map"]
    print(f"{'lane':<10} {'mAP@0.5':>8} {'drop':>8} {'95 % at least':>14} {'boxes dB':>9} {'scores dB':>10}")
    print(f"{'float':<10} {first['float']:8.4f}")
    for lane in LANES:
        facts = targets[lane]
        product = next(gate for gate in facts["gates"] if gate["boundary"] == "product")
        sqnr = {
            g["output"]: g["value"] for g in facts["gates"] if (g["boundary"], g["figure"]) == ("quantized", "sqnr_db")
        }
        quantised, lower = facts["metrics"]["coco_map"]["quantized"], product["detail"]["lower"]
        figures = f"{quantised:8.4f} {product['value']:8.4f} {lower:14.4f} {sqnr['boxes']:9.1f} {sqnr['scores']:10.1f}"
        print(f"{lane:<10} {figures}")


if __name__ == "__main__":
    main()
