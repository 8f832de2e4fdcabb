"""What holds for the whole suite.

hypothesis has no deadline, since a busy machine is no fault of the code. A job in the background of a shell ignores
SIGINT and hands that on to its children: tests that interrupt a build would wait for ever.
"""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
