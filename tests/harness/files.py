"""The files of a data directory, also below a running server, which makes and removes some while they are looked at."""

import os
import pathlib

MIB = 1 << 20


def files_below(folder, *endings):
    """Each file below `folder` whose name ends with one of `endings` (any, without them), with its `os.stat`; what vanishes meanwhile is left out."""
    found = []
    for path, _, names in os.walk(folder):
        for name in names:
            if endings and not name.endswith(endings):
                continue
            file = pathlib.Path(path, name)
            try:
                found.append((file, file.stat()))
            except FileNotFoundError:
                pass  # removed meanwhile
    return found


def disk_mb(folder, *endings):
    """What those files take on disk, in MiB: of a log that is written ahead only the blocks in use."""
    return sum(stat.st_blocks * 512 for _, stat in files_below(folder, *endings)) / MIB
