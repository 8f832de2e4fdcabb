"""Plan room: what is planned, one target with its data. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npubake.recipe.data import Listing
from npubake.recipe.presets import Preprocessing
from npubake.recipe.targets import TRIAL_SUFFIX, Target

FAST_EXAMPLES = 8  # of the calibration and of the validation set, in a --fast trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is planned: a target, its preprocessing as the lock has it, and its data by names and digests.

    validation: None where the recipe states no metric; then the calibration set serves the tensor measures. weights:
    files beside the model that keep its values, in the order that ``import`` expects. loaded_samples, loaded_scales:
    files of an earlier build that are used again. sdk_version: of the vendor's SDK on this machine, where one is used.
    """

    target: Target
    preprocessing: Preprocessing
    calibration: Listing
    validation: Listing | None = None
    labels: tuple[Path, ...] = ()
    weights: tuple[Path, ...] = ()
    loaded_samples: Path | None = None
    loaded_scales: Path | None = None
    fast: bool = False
    sdk_version: str = ""

    @property
    def name(self) -> str:
        """The target's name, which is also its folder's below ``build/``."""
        return f"{self.target.name}{TRIAL_SUFFIX}" if self.fast else self.target.name
