"""``python -m npubake``."""

import sys

from npubake.cli import main

sys.exit(main())
