"""Reference toolchain: what ``compile`` reads of a platform and a recipe, parsed once. Plain data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from npubake.layout.strides import MemoryRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the artifact is for. soc, march: the platform's; sdk, bsp, runtime_package: the recipe's words, or ''."""

    platform: str
    soc: str
    march: str
    sdk: str
    bsp: str
    runtime_package: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFacts:
    """tail: dtype in which a GEMM-like tail leaves; max_l2m_bytes: the platform's cap, None where it has no L2M;
    requested_l2m_bytes: the recipe's ``max_l2m_size``; core_num: cores that one inference is to use; preset: expanded,
    None where it takes prepared tensors; layouts: the recipe's own, by input.
    """

    identity: Identity
    memory: MemoryRules
    tail: Literal["int32", "float32"]
    max_l2m_bytes: int | None
    requested_l2m_bytes: int | None
    core_num: int
    preset: Mapping[str, Any] | None
    layouts: Mapping[str, str]

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> PlatformFacts:
        """From ``compile``'s parameters: ``platform`` (facts), ``options`` (recipe's choices), ``sdk`` (versions),
        ``preset`` and ``layouts``.
        """
        facts: Mapping[str, Any] = params["platform"]
        options: Mapping[str, Any] = params.get("options") or {}
        sdk: Mapping[str, Any] = params.get("sdk") or {}
        return cls(
            identity=Identity(
                platform=facts["name"],
                soc=facts.get("soc") or "",
                march=facts.get("march") or "",
                sdk=sdk.get("version") or "",
                bsp=sdk.get("bsp") or "",
                runtime_package=sdk.get("runtime_package") or "",
            ),
            memory=MemoryRules(
                nv12_stride_bytes=facts["nv12_stride_bytes"],
                tensor_unit_bytes=facts["tensor_unit_bytes"],
                input_no_padding=bool(options.get("input_no_padding", False)),
                output_no_padding=bool(options.get("output_no_padding", False)),
            ),
            tail=facts["tail"],
            max_l2m_bytes=facts.get("max_l2m_bytes"),
            requested_l2m_bytes=options.get("max_l2m_bytes"),
            core_num=options.get("core_num", 1),
            preset=params.get("preset"),
            layouts=params.get("layouts") or {},
        )

    def identity_json(self) -> dict[str, str]:
        return asdict(self.identity)
