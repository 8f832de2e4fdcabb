"""Qualcomm toolchain: AIMET as the quantiser. The optimised float model and samples enter, a QDQ model leaves.

``settings``: a lane and an SoC in AIMET's words; ``simulation``: AIMET itself, in a process of its own;
``encodings``: the file that it exports; ``qdq``: its model in this project's names; ``coverage``: what has no encoding;
``quantising``: the whole of it; ``adopting``: its model as ``adapt``'s; ``mending``: without fusions that the compiler
computes wrongly; ``refusals``: what of a recipe AIMET cannot heed, for ``check``.
"""
