"""Layout room: what a recipe may ask of a platform's L2M (memory beside the cores). Bytes in, faults out; no numpy."""

from __future__ import annotations

from npubake.errors import Fault


def l2m_faults(requested: int | None, cap: int | None, platform: str) -> list[Fault]:
    """What is wrong with a requested max_l2m_size (bytes) on a platform whose cap is ``cap`` (None: it has no L2M)."""
    if requested is None:
        return []
    path = f"$.platform_options.{platform}.max_l2m_size"
    if cap is None:
        return [Fault(path=path, what=f"{platform} has no L2M", hint="leave max_l2m_size out for this platform")]
    if not 0 <= requested <= cap:
        what = f"{requested} bytes of L2M; {platform} has at most {cap}"
        return [Fault(path=path, what=what, hint=f"0 to {cap} bytes")]
    return []
