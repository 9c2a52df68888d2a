#!/usr/bin/env python3
"""Measurements that need more than `settee bench`: other servers, clients and packages.

usage: python3 scripts/bench KIND --binary PATH [--json FILE] [OPTION...]

KIND is all, peers, clients, ten-million, bindings or ids; `make bench-KIND` runs it. `python3 scripts/bench KIND --help` lists its options. What `peers`
does not know is passed on to `settee bench`.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys

sys.dont_write_bytecode = True

import clients  # noqa: E402
import ids  # noqa: E402
import manual  # noqa: E402
import peers  # noqa: E402
import ten_million  # noqa: E402
from instances import Failed  # noqa: E402

import bindings  # noqa: E402

KINDS = {"all": manual, "peers": peers, "clients": clients, "ten-million": ten_million, "bindings": bindings, "ids": ids}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name, kind in KINDS.items():
        each = kinds.add_parser(
            name, help=kind.__doc__.splitlines()[0], description=kind.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        each.add_argument("--binary", required=True, help="the program settee, with settee-bench beside it")
        if kind is not peers:
            each.add_argument("--json", type=pathlib.Path, help="a file for all that was measured")
        kind.add_options(each)
    options, rest = parser.parse_known_args()
    if rest and options.kind != "peers":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.keep = lambda found: options.json and options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    # Ended by a signal, everything is still stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(KINDS[options.kind].run(options, rest))
    except (Failed, subprocess.SubprocessError) as failed:
        sys.exit(f"bench {options.kind}: {failed}")


if __name__ == "__main__":
    main()
