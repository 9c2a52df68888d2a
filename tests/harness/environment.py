"""Environment variables of the programs that a test starts."""

import contextlib
import os


@contextlib.contextmanager
def changed_environment(changed):
    """Sets variables of this process, which programs that are started inherit, and restores them at the end."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
