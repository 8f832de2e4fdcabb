"""Qualcomm toolchain: a decided float model becomes QDQ in the forms that the HTP compiler takes."""
