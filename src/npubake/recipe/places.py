"""Recipe room: whether a path that a recipe names leads to something that can be read. Looks at the path only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "it is a pipe, not a file",
    stat.S_IFCHR: "it is a device, not a file",
    stat.S_IFBLK: "it is a device, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
}


def why_no_file(path: Path) -> str:
    """Why ``path`` is no regular file that can be read; '' where it is one. A pipe is not opened: it would block."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "it is a link that leads nowhere" if path.is_symlink() else "there is no such file"
    except (OSError, ValueError) as error:
        return _words(error)
    if stat.S_ISDIR(mode):
        return "it is a folder, not a file"
    if not stat.S_ISREG(mode):
        return _KINDS.get(stat.S_IFMT(mode), "it is no file")
    return "" if os.access(path, os.R_OK) else "it may not be read: permission denied"


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; False where it cannot be looked at."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _words(error: OSError | ValueError) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason[:1].lower() + reason[1:]
