"""A power failure: of what a program wrote to a folder, and did not sync, nothing is left, or only some.

The program runs with a library (power_cut.c) that notes what its syncs cover. After it was killed, `VolatileFolder.cut` makes the
folder what a disk could have then: a file has its content as of its last sync, a directory its names as of its own. The library is
compiled with the C compiler that the engine needs too.

A program that was killed without a power failure forgets what it had not synced as well, so that each death of one needs a `cut`, if only
one that `EVERYTHING` survives.
"""

import os
import pathlib
import shutil
import stat
import subprocess

# What survives of what was not synced: each of these may happen.
NOTHING, BEGINNINGS, SECTORS, EVERYTHING = "nothing", "beginnings", "sectors", "everything"
# The unit that a disk writes whole, and the one in which the kernel writes files.
SECTOR_BYTES, PAGE_BYTES = 512, 4096
COMPARED_BYTES = 1 << 20
# How long a sync takes, so that others wait for it.
SYNC_US = 1_000
SOURCE = pathlib.Path(__file__).with_suffix(".c")


class Library:
    """The library, made in a folder; `refused` says why it cannot be."""

    def __init__(self, folder):
        self.path, self.refused = folder / "power_cut.so", ""
        compiler = shutil.which("cc")
        if not compiler:
            self.refused = "there is no C compiler"
            return
        options = ["-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-pthread"]
        command = [compiler, *options, "-o", str(self.path), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.refused = f"the library of power failures does not compile: {done.stderr}"


class VolatileFolder:
    """A folder on one file system. What is in it now counts as synced."""

    def __init__(self, root, library):
        self.root, self.library = pathlib.Path(root).resolve(), library
        self.state = self.root.with_name(self.root.name + ".power")
        # Files and names whose unsynced changes were lost, at all cuts.
        self.forgotten = 0
        self.begin()

    def begin(self):
        shutil.rmtree(self.state, ignore_errors=True)
        for kind in ("inodes", "names", "kept"):
            (self.state / kind).mkdir(parents=True)

    def environment(self):
        """That of a program whose power can be cut."""
        power = {"TEST_POWER_ROOT": str(self.root), "TEST_POWER_STATE": str(self.state), "TEST_POWER_SYNC_US": str(SYNC_US)}
        return {**os.environ, "LD_PRELOAD": str(self.library.path), **power}

    def cut(self, random, survives):
        """After all programs in it were killed."""
        if survives != EVERYTHING:
            after = self.root.with_name(self.root.name + ".after")
            shutil.rmtree(after, ignore_errors=True)
            aftermath = Aftermath(self, random, survives)
            aftermath.restore_folder(self.root, after)
            self.forgotten += aftermath.forgotten
            shutil.rmtree(self.root)
            after.rename(self.root)
        self.begin()


class Aftermath:
    """Makes a folder what is left of another one."""

    def __init__(self, folder, random, survives):
        self.state, self.random, self.survives = folder.state, random, survives
        # A journal may have the names of what was not synced.
        self.has_new_names = survives != NOTHING and random.random() < 0.5
        self.forgotten = 0
        self.files, self.folders, self.restored = {}, {}, {}
        for path in (folder.root, folder.state / "kept"):
            self.find(path)

    def find(self, folder):
        """By inode, where files and folders are."""
        for kind, inode, name in present(folder):
            path = pathlib.Path(folder, name)
            if kind == "d":
                self.folders[inode] = path
                self.find(path)
            else:
                self.files[inode] = path

    def restore_folder(self, folder, after):
        after.mkdir()
        shutil.copymode(folder, after)
        for kind, inode, name in self.names(folder):
            if kind == "d":
                self.restore_folder(self.folders[inode], after / name)
            else:
                self.restore_file(inode, after / name)

    def names(self, folder):
        now = present(folder)
        synced = self.state / "names" / str(os.stat(folder).st_ino)
        if self.has_new_names or not synced.exists():
            return now
        lines = [line.split(" ", 2) for line in synced.read_text(encoding="utf-8").splitlines()]
        before = [(kind, int(inode), name) for kind, inode, name in lines]
        # The crate `tempfile` renames without the C library, which is not noticed: such a change counts as synced.
        known = {name: (kind, inode, name) for kind, inode, name in now}
        is_gone = lambda kind, inode: inode not in (self.folders if kind == "d" else self.files)
        before = [known.get(name) if is_gone(kind, inode) else (kind, inode, name) for kind, inode, name in before]
        before = [entry for entry in before if entry]
        self.forgotten += len(set(now) ^ set(before))
        return before

    def restore_file(self, inode, path):
        if inode in self.restored:
            os.link(self.restored[inode], path)
            return
        self.restored[inode] = path
        now, synced = self.files[inode], self.state / "inodes" / str(inode)
        if not synced.exists():
            os.link(now, path)
            return
        path.write_bytes(self.content(synced.read_bytes(), now.read_bytes()))
        shutil.copymode(now, path)

    def content(self, synced, now):
        if synced == now:
            return now
        self.forgotten += 1
        unit = SECTOR_BYTES if self.survives == SECTORS else PAGE_BYTES
        changed = changed_units(synced, now, unit)
        match self.survives:
            case "beginnings":
                kept = changed[: self.random.randint(0, len(changed))]
            case "sectors":
                kept = [at for at in changed if self.random.random() < 0.5]
            case _:
                kept = []
        return mixed(synced, now, kept, unit)


def present(folder):
    """The folders and files in a folder: kind, inode and name of each."""
    found = []
    for entry in os.scandir(folder):
        about = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode):
            found.append(("d" if stat.S_ISDIR(about.st_mode) else "f", about.st_ino, entry.name))
    return found


def changed_units(synced, now, unit):
    """The positions of the units that are not the same."""
    changed = []
    for start in range(0, max(len(synced), len(now)), COMPARED_BYTES):
        end = start + COMPARED_BYTES
        if synced[start:end] != now[start:end]:
            changed += [at for at in range(start, end, unit) if synced[at : at + unit] != now[at : at + unit]]
    return changed


def mixed(synced, now, kept, unit):
    """What was synced, with these units of what is there now."""
    # A file grows as far as it was written, and what is in between is zeros.
    end = max([len(synced), *(min(at + unit, len(now)) for at in kept)])
    content = bytearray(synced.ljust(end, b"\0"))
    for at in kept:
        piece = now[at : at + unit]
        content[at : at + len(piece)] = piece
    return bytes(content)
