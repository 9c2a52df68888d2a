"""What a test is given: the binary, a directory of its own, the report, and how long it may be."""

import random

from harness import server as servers

# A hash of a password takes a seventh of a second of a processor, and so does a comparison with it: those of an admin at each start.
CHEAP_HASHES = ("--set", "chttpd_auth/iterations=10")


class Context:
    """`has_cheap_hashes`: the servers of this context hash passwords with few iterations, if a test says nothing else."""

    def __init__(self, binary, root, report, soak, seed, random_seed, checkout, cache, has_cheap_hashes):
        self.binary, self.root, self.report, self.soak, self.seed = binary, root, report, soak, seed
        root.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(random_seed)
        self.checkout, self.cache = checkout, cache
        self.cheap_hashes = CHEAP_HASHES if has_cheap_hashes else ()

    def size(self, test, soak):
        return soak if self.soak else test

    def limit(self, name, figure, maximum, unit):
        """A figure for the reader. In a soak, which has its machine to itself, it must not exceed what is promised."""
        self.report.note(f"{name}: {figure:.4g} {unit} (in a soak at most {maximum:g})")
        if self.soak:
            self.report.check(f"{name}: at most {maximum:g} {unit}", figure <= maximum, f"{figure:.4g} {unit}")

    def folder(self, name):
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def server(self, name="data", *, options=(), **more):
        if not any("chttpd_auth/iterations" in str(option) for option in options):
            options = [*self.cheap_hashes, *options]
        return servers.Server(self.binary, self.root / name, options=options, **more)
