"""Qualcomm toolchain, the road of the QAIRT SDK: what its tools are told, by pure functions; and what runs them."""
