"""Room ``graph/transforms``: rewrites that keep the float function and ease quantisation. Model in, model out."""
