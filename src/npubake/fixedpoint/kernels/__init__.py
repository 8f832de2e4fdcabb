"""Room ``fixedpoint``: exact integer kernels, one file a family. A kernel takes (Lowering, FusionGroup) and writes nodes."""
