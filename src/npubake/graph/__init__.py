"""Model files and graph passes, (Model) -> Model. Knows onnx; knows no recipe, no platform and no build order."""
