"""Integer lowering, requantisation and lookup tables: arithmetic that is exact on every CPU."""
