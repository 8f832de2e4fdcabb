"""npubake bakes a trained model into a deployable artifact for an edge NPU, from one declarative YAML recipe."""

import os

__version__ = "0.1.0"

# Official builds of onnxruntime, from 1.29 on, send names and hashes of models to their maker unless told not to before
# they are imported. What is built here is nobody's business; who wants it sets the variable to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
