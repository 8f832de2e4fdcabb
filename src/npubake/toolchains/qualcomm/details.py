"""Qualcomm toolchain: what it is made of here, for ``doctor``: versions, C library, licence, a smoke compile. Nothing
heavy in this process.
"""

from __future__ import annotations

from npubake.errors import Fault
from npubake.toolchains import Details
from npubake.toolchains.qualcomm.htp.smoke import smoke
from npubake.toolchains.qualcomm.licence import licence_facts, licence_folder
from npubake.toolchains.qualcomm.probe import this_machine

_WORDS = {"onnxruntime_qnn": "execution provider", "qnn": "QNN", "onnxruntime": "onnxruntime"}


def details() -> Details:
    """The versions that the smoke compile saw, and its failure, if it failed."""
    tried, machine = smoke(), this_machine()
    facts = {words: tried.tools[name] for name, words in _WORDS.items() if name in tried.tools}
    facts |= {"build": tried.build_id} if tried.build_id else {}
    facts["glibc"] = ".".join(map(str, machine.glibc))
    facts["smoke compile"] = tried.text
    facts |= {
        f"licence ({entry['name'].rpartition('/')[2]})": entry["for"] for entry in licence_facts().get("files", ())
    }
    facts["licence files in"] = licence_folder()
    if tried.compiled:
        return Details(facts=facts)
    hint = (
        "pip install --force-reinstall 'npubake[qualcomm]'; it must stand beside the onnxruntime that it was built for"
    )
    return Details(
        facts=facts, faults=(Fault(what=f"the smoke compile failed: {tried.why}", where="qualcomm", hint=hint),)
    )
