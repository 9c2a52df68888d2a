#!/usr/bin/env python3
"""Installs the Node packages of a folder into the machine's cache, and links them as its `node_modules`: `scripts/node_packages.py FOLDER`.

A `node_modules` of the folder's own, made by `npm ci`, is left alone.
"""

import os
import pathlib
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT / "tests"))

from harness.packages import node_modules  # noqa: E402


class Context:
    """The members of a test's context that `node_modules` uses."""

    cache = pathlib.Path(os.environ.get("SETTEE_CACHE") or pathlib.Path.home() / ".cache" / "settee")

    class report:
        @staticmethod
        def note(text):
            print(f"setup: {text}", file=sys.stderr)


def main():
    folder = pathlib.Path(sys.argv[1])
    link = folder / "node_modules"
    if link.is_dir() and not link.is_symlink():
        return
    place = node_modules(Context, folder)
    if not link.is_symlink() or link.readlink() != place:
        link.unlink(missing_ok=True)
        link.symlink_to(place)


if __name__ == "__main__":
    main()
