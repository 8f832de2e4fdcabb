"""package: the bundle holds its inputs byte for byte, lists their digests, and repeats."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

from npubake.toolchains.reference import bundle
from tests.toolchains.digits import GRAY, J6P, calibrated, compiled, packaged, quantised, verified


def test_bundle(tmp_path: Path) -> None:
    roads = [quantised(calibrated().branch(tmp_path / name), {"runtime_input": GRAY}) for name in ("a", "b")]
    roads = [packaged(verified(compiled(road, {"platform": J6P}), {"count": 1})) for road in roads]
    data = roads[0].files["package.bundle"].read_bytes()
    assert data == roads[1].files["package.bundle"].read_bytes()
    for port in ("deployable", "contract"):  # handed on
        assert roads[0].files[f"package.{port}"].read_bytes() == roads[0].files[f"compile.{port}"].read_bytes()
    ports = {
        bundle.PACKAGE: "compile.deployable",
        bundle.CONTRACT: "compile.contract",
        bundle.CALIBRATION: "samples",
        bundle.VERIFIED: "verify.record",
        bundle.OUTPUTS: "verify.outputs",
    }
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert set(archive.namelist()) == {*ports, "SHA256SUMS"}
        lines = [line.split("  ") for line in archive.read("SHA256SUMS").decode().splitlines()]
        sums = {name: digest for digest, name in lines}
        for name, port in ports.items():
            content = archive.read(name)
            assert content == roads[0].files[port].read_bytes()
            assert sums[name] == hashlib.sha256(content).hexdigest()
