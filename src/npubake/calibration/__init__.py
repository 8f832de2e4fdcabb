"""Samples, preprocessing and statistics: what the float model sees and what is counted of it."""
