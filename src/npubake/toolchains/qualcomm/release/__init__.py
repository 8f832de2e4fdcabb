"""Qualcomm toolchain: what is delivered: the contract, the bundle, what it is compared with, and its verification."""
