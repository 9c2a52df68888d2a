"""A naive model of a database with access by document: trees of revisions, whose leaves name readers and writers.

It is written after docs/src/guide/access.md, and filters everything by hand. `crates/database/tests/it/access.rs` has one below HTTP.
"""

NOBODY = frozenset()


class Revision:
    """`parent` is the id of a revision; `names` the principals that its body names, (readers, writers), None without a body. An ancestor
    that was never written itself is no edit."""

    def __init__(self, rev):
        self.rev, self.parent, self.deleted, self.access = rev, None, False, (NOBODY, NOBODY)
        self.names = self.content = None
        self.is_edit = False

    @property
    def order(self):
        """Of two leaves, the winner has the higher one."""
        generation, _, digest = self.rev.partition("-")
        return (not self.deleted, int(generation), digest)


class User:
    def __init__(self, name, roles=(), is_admin=False):
        self.name, self.roles, self.is_admin = name, set(roles), is_admin

    def is_among(self, principals):
        mine = {"*"} | {f"role:{role}" for role in self.roles}
        mine |= {self.name, "role:_users"} if self.name else set()
        return self.is_admin or bool(mine & principals)


def sets_of(access):
    """The readers and the writers of a member `_access`."""
    if access is None:
        return (NOBODY, NOBODY)
    if isinstance(access, list):
        return (frozenset(access), frozenset(access))
    writers = frozenset(access.get("write", []))
    return (frozenset(access.get("read", [])) | writers, writers)


def path_of(start, digests):
    return [f"{start - index}-{digest}" for index, digest in enumerate(digests)]


class Document:
    def __init__(self):
        self.revs = {}

    def leaves(self):
        """Winner first."""
        parents = {one.parent for one in self.revs.values()}
        return sorted((one for one in self.revs.values() if one.rev not in parents), key=lambda one: one.order, reverse=True)

    def visible(self, user):
        """The leaves that a user sees: none if the winner is hidden."""
        leaves = self.leaves()
        if not leaves or not user.is_among(leaves[0].access[0]):
            return []
        return [leaf for leaf in leaves if user.is_among(leaf.access[0])]

    def path(self, rev):
        """A revision and its ancestors."""
        while rev is not None:
            yield self.revs[rev]
            rev = self.revs[rev].parent

    def known(self, user):
        """The revisions of which a user may learn that there are: visible leaves, and their ancestors."""
        return {one.rev for leaf in self.visible(user) for one in self.path(leaf.rev)}

    def interactive(self, user, parent, deleted, names):
        """The outcome of an edit by a client, and the revision that it follows."""
        leaves = self.leaves()
        winner = leaves[0] if leaves else None
        if parent is not None:
            base = next((leaf for leaf in leaves if leaf.rev == parent), None)
            if base is None:
                return "conflict", None
        elif winner and not winner.deleted:
            return "conflict", None
        else:
            base = winner
        outcome = self._judged(user, [one for one in (base, winner) if one], base and deleted, names, "conflict")
        if outcome == "ok" and parent is not None and winner.deleted:
            return "conflict", base
        return outcome, base

    def replicated(self, user, path, deleted, names):
        """The outcome of a replicated edit, and the revision whose access a tombstone takes over."""
        leaves = self.leaves()
        if path[0] in self.known(user):
            return "known", None
        nearest = next((rev for rev in path[1:] if rev in self.revs), None)
        base = next((leaf for leaf in leaves if leaf.rev == nearest), leaves[0] if leaves else None)
        outcome = self._judged(user, [one for one in (base, *leaves[:1]) if one], base and deleted, names, "forbidden")
        if outcome == "ok" and path[0] in self.revs:
            return "known", None
        if outcome == "ok" and not user.is_admin and self._hides_ancestor(user, path, nearest):
            return "forbidden", base
        return outcome, base

    def _judged(self, user, edited, removes, names, when_hidden):
        if user.is_admin:
            return "ok"
        if not all(user.is_among(one.access[1]) for one in edited):
            return when_hidden if any(not user.is_among(one.access[0]) for one in edited) else "forbidden"
        return "ok" if removes or user.is_among(names[1]) else "forbidden"

    def _hides_ancestor(self, user, path, nearest):
        """Whether the first ancestor with a body, by the edit or by the tree, is hidden."""
        by_edit = [self.revs[rev] for rev in path[1:] if rev in self.revs]
        by_tree = list(self.path(nearest)) if nearest else []
        return any(self._hides_first(user, ancestors) for ancestors in (by_edit, by_tree))

    def _hides_first(self, user, ancestors):
        leaves = {leaf.rev for leaf in self.leaves()}
        for one in ancestors:
            if one.rev in leaves:
                return not user.is_among(one.access[0])
            if one.names is not None:
                # A tombstone without members shows nothing.
                return not (one.deleted or user.is_among(one.names[0]))
        return False

    def add(self, path, deleted, names, base, content):
        """Adds the revision at the front of a path; the others that are not there have no bodies."""
        for rev, parent in zip(path, [*path[1:], None], strict=True):
            one = self.revs.setdefault(rev, Revision(rev))
            one.parent = one.parent or parent
        new = self.revs[path[0]]
        new.deleted, new.names, new.content, new.is_edit = deleted, names, content, True
        new.access = base.access if base and deleted else names

    def purge(self, rev):
        """Removes a leaf, and its ancestors that no other leaf has."""
        kept = {one.rev for leaf in self.leaves() if leaf.rev != rev for one in self.path(leaf.rev)}
        self.revs = {rev: one for rev, one in self.revs.items() if rev in kept}

    def compact(self):
        """Bodies of ancestors go."""
        leaves = {leaf.rev for leaf in self.leaves()}
        for one in self.revs.values():
            if one.rev not in leaves:
                one.names = one.content = None
