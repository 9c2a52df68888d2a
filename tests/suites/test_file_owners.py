"""Commands that root runs on directories of the service's user. An attacker with that user's rights replaces files and directories with symbolic
links: root must not read or write through them, and must not start programs that the user's settings name."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness.server import Server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do what must not happen")

# `nobody`, who stands for the service's user.
OWNER = 65534
COMMAND_TIMEOUT_S = 120
SECRET = "of root alone"

# Replaces a directory with a link as soon as it is there: DIRECTORY ASIDE TARGET
SWAP = """
import os, sys
directory, aside, target = sys.argv[1:]
print("ready", flush=True)
while True:
    if os.path.isdir(directory) and not os.path.islink(directory):
        os.rename(directory, aside)
        os.symlink(target, directory)
        print("swapped", flush=True)
        break
"""


@pytest.fixture
def place(ctx):
    """A folder that the owner can reach, with a file and a folder in it that only root can."""
    path = ctx.folder("place")
    for folder in [path, *path.parents]:
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    private = path / "private"
    private.mkdir(mode=0o700)
    (private / "secret").write_text(SECRET)
    return path


@pytest.fixture
def store(ctx, place):
    """The data directory of a server that was stopped, which belongs to the owner."""
    server = Server(ctx.binary, place / "data")
    with server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for number in range(20):
            api.expect(201, "PUT", f"/db/d{number}", {"n": number})
        server.stop()
    data = pathlib.Path(server.data)
    give(data)
    return data


def give(*paths):
    for path in paths:
        for folder, folders, files in os.walk(path):
            for name in [*folders, *files]:
                os.lchown(os.path.join(folder, name), OWNER, OWNER)
        os.lchown(path, OWNER, OWNER)


def settee(ctx, *arguments):
    return subprocess.run([ctx.binary, *map(str, arguments)], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)


def owners(path):
    return {os.lstat(os.path.join(folder, name)).st_uid for folder, folders, files in os.walk(path) for name in [*folders, *files, ""]}


def contents(path):
    files = [pathlib.Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    return [file.read_bytes() for file in files if file.is_file()]


def holds_secret(path):
    return any(SECRET.encode() in content for content in contents(path))


def copy_with_many_files(place, store, count):
    """A copy of a store, of files whose syncs take their time."""
    copy = place / "copy"
    shutil.copytree(store / "store", copy)
    for number in range(count):
        (copy / f"{900_000 + number}.sst").write_bytes(b"x" * 4096)
    return copy


def test_restore_writes_through_no_link(ctx, place, store):
    """The directory that is being written is replaced by a link."""
    copy, data = copy_with_many_files(place, store, 2_000), place / "fresh"
    data.mkdir(mode=0o700)
    give(data)
    swap = subprocess.Popen(
        [shutil.which("python3", path="/usr/bin") or sys.executable, "-c", SWAP, data / "store.restoring", data / "aside", place / "private"],
        stdout=subprocess.PIPE,
        text=True,
        user=OWNER,
        group=OWNER,
        extra_groups=[],
    )
    try:
        ctx.report.equal("the owner looks", swap.stdout.readline(), "ready\n")
        restored = settee(ctx, "restore", copy, data)
        ctx.report.equal("it was replaced", swap.stdout.readline(), "swapped\n")
    finally:
        swap.kill()
        swap.wait()
    ctx.report.equal("nothing was written where it leads", sorted(path.name for path in (place / "private").iterdir()), ["secret"])
    ctx.report.check("which is an error", restored.returncode == 1 and "replaced" in restored.stderr, restored.stderr)


def test_restore_reads_what_the_owner_of_the_path_may_read(ctx, place, store):
    """The path of the copy is a link of the owner, to a store that only root can read."""
    private = place / "private/copy"
    shutil.copytree(store / "store", private)
    os.chown(private, 0, 0)
    (place / "theirs").mkdir()
    (place / "theirs/copy").symlink_to(private)
    give(place / "theirs")
    data = place / "fresh"
    data.mkdir(mode=0o700)
    give(data)
    restored = settee(ctx, "restore", place / "theirs/copy", data)
    ctx.report.equal("it is refused", restored.returncode, 1)
    ctx.report.equal("nothing was restored", contents(data), [])


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_check_refuses_a_directory_that_others_change(ctx, place, mode):
    """Root cannot know as whom to work."""
    data = place / "data"
    data.mkdir()
    os.chown(data, 0, OWNER)
    data.chmod(mode)
    checked = settee(ctx, "check", data)
    ctx.report.check("it is refused, with a reason", checked.returncode == 2 and "run this command as one of them" in checked.stderr, checked)


def test_restore_gives_what_it_made(ctx, place, store):
    data = place / "fresh"
    data.mkdir(mode=0o700)
    give(data)
    restored = settee(ctx, "restore", store / "store", data)
    ctx.report.equal("it ends well", (restored.returncode, restored.stderr), (0, ""))
    ctx.report.equal("all is the owner's", owners(data), {OWNER})
    ctx.report.equal("nothing is left unfinished", [path.name for path in data.iterdir()], ["store"])
    again = settee(ctx, "restore", store / "store", data)
    ctx.report.check("what is there stays", again.returncode == 1 and "holds data already" in again.stderr, again.stderr)


def test_restore_removes_what_was_left_and_no_more(ctx, place, store):
    data = place / "fresh"
    data.mkdir(mode=0o700)
    (data / "store.restoring").symlink_to(place / "private")
    give(data)
    restored = settee(ctx, "restore", store / "store", data)
    ctx.report.equal("it ends well", (restored.returncode, restored.stderr), (0, ""))
    ctx.report.equal("what the link led to is there", (place / "private/secret").read_text(), SECRET)


def test_restore_to_where_a_link_of_others_leads(ctx, place, store):
    """The data directory's own name leads elsewhere."""
    (place / "theirs").mkdir()
    (place / "theirs/data").symlink_to(place / "private")
    give(place / "theirs")
    restored = settee(ctx, "restore", store / "store", place / "theirs/data")
    ctx.report.equal("it is refused", restored.returncode, 1)
    ctx.report.equal("nothing was written", [path.name for path in (place / "private").iterdir()], ["secret"])


@pytest.mark.parametrize("owner", ["root", "owner"])
@pytest.mark.parametrize("what", ["a file", "a folder", "a pipe"])
def test_restore_reads_through_no_link(ctx, place, store, what, owner):
    """Somebody has put links into the copy, to what only root can read."""
    copy, data = copy_with_many_files(place, store, 0), place / "fresh"
    if what == "a file":
        (copy / "900000.sst").symlink_to(place / "private/secret")
    elif what == "a pipe":
        os.mkfifo(copy / "900000.sst")
    else:
        (copy / "text").mkdir(exist_ok=True)
        (copy / "text/0").symlink_to(place / "private")
    if owner == "owner":
        give(copy)
    data.mkdir(mode=0o700)
    give(data)
    restored = settee(ctx, "restore", copy, data)
    ctx.report.check("nothing of it is restored", not holds_secret(data), restored.stderr)
    # The owner cannot see that the link leads to a file. A pipe is no part of a store.
    is_error = what == "a folder" or (what == "a file" and owner == "root")
    ctx.report.equal("a link is an error where it is seen", restored.returncode, int(is_error))


def test_repair(ctx, place, store):
    """Settings are copied beside what could be read of the store."""
    (store / "local.ini").unlink(missing_ok=True)
    (store / "local.ini").symlink_to(place / "private/secret")
    (store / "local.d").symlink_to(place / "private")
    give(store)
    repaired = settee(ctx, "repair", store, place / "repaired")
    ctx.report.equal("it ends well", (repaired.returncode, repaired.stderr), (0, ""))
    ctx.report.equal("all is the owner's", owners(place / "repaired"), {OWNER})
    ctx.report.check("and holds nothing of root's", not holds_secret(place / "repaired"))
    with Server(ctx.binary, place / "repaired") as server:
        ctx.report.equal("it has the documents", server.api().get("/db").json["doc_count"], 20)


def test_repair_into_a_directory_of_others(ctx, place, store):
    """Where the new store is written is replaced by a link."""
    new = place / "new"
    new.mkdir()
    give(new)
    (new / "store.saving").symlink_to(place / "private")
    repaired = settee(ctx, "repair", store, new)
    ctx.report.equal("what the link led to is there", (place / "private/secret").read_text(), SECRET)
    ctx.report.equal("and nothing else", len(list((place / "private").iterdir())), 1)
    ctx.report.check("it is told", repaired.returncode in (0, 1), repaired)


def test_check_starts_no_program_as_root(ctx, place):
    """The settings in the data directory name query servers."""
    script, log = place / "language", place / "users"
    script.write_text(
        f"""#!/bin/sh
id -u >> {log}
while read -r line; do
  case "$line" in
    '["map_doc"'*) echo '[[[1,1]]]' ;;
    *) echo true ;;
  esac
done
"""
    )
    script.chmod(0o755)
    log.touch()
    log.chmod(0o666)
    server = ctx.server("place/data", options=["--set", f"query_servers/test={script}"])
    with server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        api.expect(201, "PUT", "/db/d", {"n": 1})
        api.expect(201, "PUT", "/db/_design/d", {"language": "test", "views": {"v": {"map": "anything"}}})
        ctx.report.equal("the language is there", len(api.get("/db/_design/d/_view/v").json["rows"]), 1)
        server.stop()
    data = pathlib.Path(server.data)
    with (data / "local.ini").open("a") as ini:
        ini.write(f"\n[query_servers]\ntest = {script}\n")
    give(data)
    log.write_text("")
    checked = settee(ctx, "check", data, "--indexes")
    ctx.report.check("it ends well", checked.returncode == 0, checked.stdout + checked.stderr)
    ctx.report.equal("the program ran, as the owner", set(log.read_text().split()), {str(OWNER)})


def test_prune_removes_through_no_link(ctx, place):
    """A folder of a target is replaced by a link to one that only root can change."""
    target = place / "target"
    target.mkdir()
    with ctx.server("place/data") as server:
        api = server.api()
        api.expect(201, "PUT", "/db")
        for number in range(2):
            api.expect(201, "PUT", f"/db/d{number}", {"n": number})
            backed_up = settee(ctx, "backup", server.url.replace("http://", f"http://{server.admin}@"), target)
            ctx.report.equal("a backup is made", (backed_up.returncode, backed_up.stderr), (0, ""))
    (target / "files").rename(place / "private/files")
    (target / "files").symlink_to(place / "private/files")
    give(target)
    before = len(contents(place / "private/files"))
    pruned = settee(ctx, "backup", "prune", target, "--keep-last", "1")
    ctx.report.equal("nothing was removed through the link", len(contents(place / "private/files")), before)
    ctx.report.check("which is an error", pruned.returncode == 1, pruned)


def test_a_node_of_a_cluster_is_made_for_the_owner(ctx, place):
    data = place / "node"
    data.mkdir(mode=0o700)
    give(data)
    made = settee(ctx, "cluster", "init", "--data", data, "--cluster", "c", "--address", "127.0.0.1:5986")
    ctx.report.equal("it is made", (made.returncode, made.stderr), (0, ""))
    ctx.report.check("there are files", contents(data))
    ctx.report.equal("all are the owner's", owners(data), {OWNER})
