"""Run under an emulated CPU: digests of the outputs of every model in a folder, as JSON on standard output.

    qemu-x86_64-static -cpu Nehalem python emulated.py FOLDER

Imports numpy and onnxruntime alone, since both are slow to import there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def digests(folder: Path) -> dict[str, str]:
    """model name -> sha256 over all outputs: one thread without optimisation, two threads with all of it."""
    level = onnxruntime.GraphOptimizationLevel
    found = {}
    for path in sorted(folder.glob("*.onnx")):
        with np.load(path.with_suffix(".npz")) as data:
            feeds = {name: data[name] for name in data.files}
        count = min(len(value) for value in feeds.values())
        digest = hashlib.sha256()
        for threads, optimisation in ((1, level.ORT_DISABLE_ALL), (2, level.ORT_ENABLE_ALL)):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.graph_optimization_level = threads, optimisation
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for index in range(count):
                for output in session.run(None, {name: value[index] for name, value in feeds.items()}):
                    digest.update(str(output.dtype).encode() + output.tobytes())
        found[path.stem] = digest.hexdigest()
    return found


if __name__ == "__main__":
    print(json.dumps(digests(Path(sys.argv[1]))))
