"""The black-box suites. Each module has a docstring and `run(ctx)`; tests/run.py names them in order."""
