"""Room ``fixedpoint``: exact integer kernels, one file a family: (Lowering, FusionGroup) enters, nodes leave."""
