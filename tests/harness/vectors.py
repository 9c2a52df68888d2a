"""The recorded behaviour of CouchDB: where it is, its replayer, and the list of exceptions."""

import importlib.util
import os
import pathlib


def vectors_folder(ctx):
    named = os.environ.get("SETTEE_VECTORS")
    return pathlib.Path(named) if named else ctx.checkout / "tests" / "vectors"


def load_replay(folder):
    spec = importlib.util.spec_from_file_location("replay", folder / "replay.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_exceptions(path):
    exceptions = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, bar, reason = line.rpartition("|")
        if not bar or not reason.strip():
            raise ValueError(f"{path}:{number}: expected 'area / scenario | reason'")
        exceptions[name.strip()] = reason.strip()
    return exceptions
