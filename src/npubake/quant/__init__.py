"""Quantisation choices as arithmetic: thresholds, scales, precisions. numpy in, numpy out."""
