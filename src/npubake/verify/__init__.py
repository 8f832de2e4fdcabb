"""Metrics, comparison of any two stages, product metrics, gates."""
