"""Tests of graph/transforms."""
