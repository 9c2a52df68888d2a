"""The databases in Python's and Node's own processes beside the same over HTTP.

The folder of --packages has the wheel and the tarball that `make bindings` builds. They are installed into a temporary folder, and each
language has one process, which measures slices in turns: in process, then over one connection kept open to a server on this
machine. A row's figure is the median of the rounds, with the lowest and the highest. Every write is on the disk before it is
acknowledged, in both.
"""

import json
import os
import pathlib
import subprocess
import tempfile

from instances import Settee

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
ROWS = {"bulk": "bulks of 1,000, documents/s", "put": "single puts/s", "get": "single gets/s"}


def add_options(parser):
    parser.add_argument("--packages", type=pathlib.Path, default=CHECKOUT / "bindings" / "dist")
    parser.add_argument("--seconds", type=float, default=2, help="of a slice")
    parser.add_argument("--rounds", type=int, default=7)


def installed(options, root):
    """The command of each language, in whose place its package is."""
    (wheel,) = options.packages.glob("*.whl")
    (tarball,) = options.packages.glob("*.tgz")
    venv, node = root / "venv", root / "node"
    call(["python3", "-m", "venv", venv])
    call([venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel])
    node.mkdir()
    (node / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    call(["npm", "install", "--offline", "--no-audit", "--no-fund", "--loglevel=error", tarball], cwd=node)
    return {
        "Python": ([venv / "bin" / "python", HERE / "in_process.py"], root),
        "Node": (["node", HERE / "in_process.mjs"], node),
    }


def call(command, cwd=None):
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, stdin=subprocess.DEVNULL)


def run(options, _):
    results = {}
    with tempfile.TemporaryDirectory(prefix="settee-bench-") as root:
        root = pathlib.Path(root)
        commands = installed(options, root)
        for language, (command, cwd) in commands.items():
            (root / language).mkdir()
            with Settee(root / language, options.binary) as server:
                asked = [
                    f"http://127.0.0.1:{server.port}",
                    f"{server.user}:{server.password}",
                    root / f"data-{language}",
                    options.seconds,
                    options.rounds,
                ]
                done = subprocess.run(
                    [str(part) for part in [*command, *asked]],
                    cwd=cwd,
                    env=os.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
            results[language] = json.loads(done.stdout)
            tell(language, results[language])
    options.keep(results)


def tell(language, measured):
    print(f"\n{language:<30} {'in process':>24} {'over HTTP':>24}   in process / HTTP")
    for row, name in ROWS.items():
        here, there = sorted(measured[row]["process"]), sorted(measured[row]["http"])
        ratio = median(here) / median(there)
        print(f"{name:<30} {shown(here):>24} {shown(there):>24}   {ratio:.1f}")


def median(values):
    return values[len(values) // 2]


def shown(values):
    return f"{median(values):,.0f} ({values[0]:,.0f}–{values[-1]:,.0f})"
