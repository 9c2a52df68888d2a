"""`ok NAME` or `not ok NAME: why` for each part of a script, and `done` at the end."""

import shutil
import sys
import tempfile
import traceback

PARTS = []


def part(function):
    PARTS.append(function)
    return function


def run():
    wanted = sys.argv[1:]
    for function in PARTS:
        if wanted and function.__name__ not in wanted:
            continue
        name = function.__name__.replace("_", " ")
        folder = tempfile.mkdtemp(prefix="settee-bindings-")
        try:
            function(folder)
            print(f"ok {name}", flush=True)
        except BaseException as failure:  # Ctrl-C is among what is tested
            traceback.print_exc()
            print(f"not ok {name}: {type(failure).__name__}: {failure}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print("done", flush=True)
