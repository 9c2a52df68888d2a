"""What a test is given: the binary, a directory of its own, the report, and how long it may be."""

import random

from harness import server as servers


class Context:
    def __init__(self, binary, root, report, soak, seed, random_seed, checkout, cache):
        self.binary, self.root, self.report, self.soak, self.seed = binary, root, report, soak, seed
        root.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(random_seed)
        self.checkout, self.cache = checkout, cache

    def size(self, test, soak):
        return soak if self.soak else test

    def folder(self, name):
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def server(self, name="data", **options):
        return servers.Server(self.binary, self.root / name, **options)
