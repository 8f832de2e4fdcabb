"""Toolchain ``qualcomm``: QDQ models in the forms that the HTP compiler takes, context binaries, their emulation."""
