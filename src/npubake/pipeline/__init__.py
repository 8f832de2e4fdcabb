"""Pipeline half: stages as values, keys, the store, the scheduler. Knows files and order; never onnx, numpy or yaml."""
