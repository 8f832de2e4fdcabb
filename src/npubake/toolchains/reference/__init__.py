"""The embedded toolchain: deterministic package, executor and verification; needs no vendor SDK."""
