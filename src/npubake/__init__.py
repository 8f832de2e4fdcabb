"""npubake bakes a trained model into a deployable artifact for an edge NPU, from one declarative YAML recipe."""

__version__ = "0.1.0"
