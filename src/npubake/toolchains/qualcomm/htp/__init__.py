"""Qualcomm toolchain: the HTP compiler and its emulator of the package onnxruntime-qnn, in processes of their own."""
