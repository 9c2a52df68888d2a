"""`settee backup` to a target that holds many, and `settee restore` to each of their moments.

What a restored server has is compared with what the original had at that moment, down to the last attachment; writers with ledgers
go on during some of the backups. Servers and commands are killed in the middle, connections break, bits flip.
"""

import copy
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

from harness.api import Api, quote
from harness.backups import compare, start_writers
from harness.environment import changed_environment
from harness.flaky_proxy import FlakyProxy
from harness.ledger import Found, Ledger, verify
from harness.object_store import SECRET, ObjectStore
from harness.server import Server, wait_until
from harness.writers import BulkWriter, LocalWriter, SerialWriter

pytestmark = pytest.mark.on_disk

COMMAND_TIMEOUT_S = 600
# Of backups over a line that breaks, until it did.
ROUNDS_MAX = 20
USERS = "_users"
# Nobody but the operator has backups go to a bucket.
TO_BUCKETS = ["--set", "backup/targets=s3://backups"]


def test_moments(ctx):
    """Each backup is one moment, and is found again by its name and by its time."""
    report, target = ctx.report, ctx.folder("moments")
    with ctx.server("moments-data") as server:
        history = history_of(ctx, server, target, ctx.size(3, 12), {})
    check_history(ctx, history, target, {})
    sizes = [backup["copied_bytes"] for backup in listed(ctx, target)]
    report.check("a backup after a small change copies little", sizes[-1] * 5 < sizes[0], sizes)
    report.note(f"bytes copied by each backup: {sizes}")

    kept = history[-2:]
    pruned = settee(ctx, "backup", "prune", target, "--keep-last", "2")
    report.equal("prune ends well", pruned.returncode, 0)
    report.equal("the last two stay", [backup["name"] for backup in listed(ctx, target)], [moment.name for moment in kept])
    needed = {file["blake3"] for backup in manifests(target) for file in backup["files"]}
    report.equal("and the files that they need, and no others", {path.name for path in (target / "files").glob("*/*")}, needed)
    check_history(ctx, kept, target, {})
    gone = settee(ctx, "restore", target, ctx.root / "gone", "--at", history[0].time)
    report.check("of a moment before all of them nothing is restored", gone.returncode == 1 and "the oldest is of" in gone.stderr, gone)


class Moment:
    """What a server had when a backup was made."""

    def __init__(self, api, ledger, backup):
        self.name, self.time = backup["name"], backup["time"]
        self.state, self.ledger = everything(api), copy_of(ledger)


def history_of(ctx, server, target, count, environment):
    """Writes and backs up in turns; answers the moments. The last change is a small one."""
    api, ledger = server.api(), Ledger("ledger")
    api.expect((201, 202), "PUT", "/ledger?q=2")
    api.expect((201, 202), "PUT", "/things?partitioned=false")
    design = {"views": {"by_kind": {"map": "function(doc) { emit(doc.kind, doc.n); }", "reduce": "_sum"}}}
    api.expect(201, "PUT", "/things/_design/d", design)
    # Compactions rewrite small stores as a whole: what changed is little only beside something large.
    fill(ctx, api, 15)
    history, last = [], None
    for number in range(count):
        small = number == count - 1
        write(ctx, server, ledger, 20 if small else ctx.size(300, 20_000))
        things(ctx, api, number, 2 if small else 40)
        backup = back_up(ctx, server, target, environment)
        history.append(Moment(api, ledger, backup))
        ctx.report.check(f"backup {number} is of a later moment", last is None or backup["time"] > last, (last, backup))
        last = backup["time"]
    return history


def things(ctx, api, number, count):
    """Documents with attachments, a user, a local document, a purge and a deletion: what a ledger has not."""
    random = ctx.random
    docs = [{"_id": f"{number}-{at}", "kind": random.choice("abc"), "n": random.randrange(1_000)} for at in range(count)]
    rows = api.expect((201, 202), "POST", "/things/_bulk_docs", {"docs": docs})
    for row in rows[: count // 2]:
        content = random.randbytes(random.choice((10, 5_000, 200_000)))
        answer = api.put(f"/things/{row['id']}/bytes?rev={row['rev']}", content, headers={"Content-Type": "application/octet-stream"})
        assert answer.status in (201, 202), answer
    api.expect((200, 202), "DELETE", f"/things/{rows[-1]['id']}?rev={rows[-1]['rev']}")
    user = {"name": f"user{number}", "password": "pw", "roles": ["r"], "type": "user"}
    api.expect((201, 202), "PUT", f"/{USERS}/org.couchdb.user:user{number}", user)
    api.expect(200, "PUT", "/things/_security", {"members": {"names": [f"user{number}"], "roles": []}})
    api.expect((200, 201, 202), "GET", "/things/_design/d/_view/by_kind?group=true")


def everything(api):
    """All that can be asked of a server, as one value, but for what it writes of its own accord a little later."""
    state = {}
    for name in api.expect(200, "GET", "/_all_dbs"):
        if name == "_global_changes":
            continue
        path = "/" + quote(name)
        found = Found(api, name)
        of = {"rows": found.rows, "changes": found.changes["results"], "security": api.expect(200, "GET", path + "/_security")}
        of["local"] = api.expect(200, "GET", path + "/_local_docs?include_docs=true")["rows"]
        of["attachments"] = {
            f"{doc_id}/{attachment}": hashlib.sha256(api.get(f"{path}/{quote(doc_id)}/{quote(attachment)}").raw).hexdigest()
            for doc_id, row in found.live.items()
            for attachment in row["doc"].get("_attachments", {})
        }
        state[name] = of
    if "things" in state:
        state["view"] = api.expect(200, "GET", "/things/_design/d/_view/by_kind?reduce=false")
        state["reduced"] = api.expect(200, "GET", "/things/_design/d/_view/by_kind?group=true")
    return state


def check_history(ctx, history, target, environment):
    newest = listed(ctx, target, environment)[-1]["name"]
    for at, moment in enumerate(history):
        choice = ("--name", moment.name) if at % 2 else ("--at", after(moment.time))
        if moment.name == newest and ctx.random.random() < 0.5:
            choice = ()
        data = ctx.root / "restored"
        shutil.rmtree(data, ignore_errors=True)
        done = settee(ctx, "restore", target, data, *choice, environment=environment)
        if not ctx.report.check(f"restore {' '.join(choice) or 'the last'} ends well", done.returncode == 0, done):
            continue
        sound = settee(ctx, "check", data, "--indexes")
        ctx.report.check(f"the store of backup {at} is sound", sound.returncode == 0, sound, quiet=True)
        with Server(ctx.binary, data) as server:
            api = server.api()
            state = everything(api)
            differs = [name for name, was in moment.state.items() if state.get(name) != was]
            ctx.report.check(
                f"the server of backup {at} has all that it had then, and nothing else", not differs and set(state) == set(moment.state), differs
            )
            verify(ctx.report, api, moment.ledger, f"backup {at}", quiet=True)
            ctx.report.equal("and takes writes", api.put("/things/after", {}).status, 201, quiet=True)
            login = Api(server.url, "user0:pw").get("/_session").json["userCtx"]["name"]
            ctx.report.equal("and knows its users", login, "user0", quiet=True)


def after(time):
    """The same time in another zone, a millisecond later."""
    moment = datetime.datetime.fromisoformat(time.replace("Z", "+00:00")) + datetime.timedelta(milliseconds=1)
    return moment.astimezone(datetime.timezone(datetime.timedelta(hours=1))).isoformat(timespec="milliseconds")


def test_beside_writers(ctx):
    """While writers go on, a backup has all that was acknowledged before it began, and everything of it whole."""
    report, target = ctx.report, ctx.folder("beside")
    with ctx.server("beside-data") as server:
        before, during = Ledger("before"), Ledger("during")
        for ledger in (before, during):
            server.api().expect((201, 202), "PUT", "/" + ledger.db)
        write(ctx, server, before, ctx.size(500, 50_000))
        writers, stop = start_writers(ctx, server, during)
        known_of = []
        for number in range(ctx.size(2, 10)):
            report.check("the writers get on", during.wait_for(300 * (number + 1), 60), during.count, quiet=True)
            known_of.append((during.revisions(), back_up(ctx, server, target, {})["name"]))
        stop.set()
        for writer in writers:
            writer.join(30)
        report.check("no write was refused meanwhile", not any(writer.unexpected for writer in writers))
    for number, (revisions, name) in enumerate(known_of):
        restored = ctx.root / f"beside-{number}"
        done = settee(ctx, "restore", target, restored, "--name", name)
        report.equal("restore ends well", done.returncode, 0, quiet=True)
        sound = settee(ctx, "check", restored, "--indexes")
        report.check("what was restored is sound", sound.returncode == 0, sound, quiet=True)
        with Server(ctx.binary, restored) as server:
            compare(report, server.api(), before, during, revisions)


def test_backup_while_writing(ctx):
    report = ctx.report
    with ctx.server() as server:
        before, during = Ledger("before"), Ledger("during")
        for ledger in (before, during):
            server.api().expect((201, 202), "PUT", "/" + ledger.db)
        write(ctx, server, before, ctx.size(2000, 100_000))
        writers, stop = start_writers(ctx, server, during)
        report.check("the writers get going", during.wait_for(500, 60), during.count)
        known = during.revisions()
        backup = ends_well(report, "backup while writing", settee(ctx, "backup", with_admin(server), ctx.root / "backup"))
        stop.set()
        for writer in writers:
            writer.join(30)
        report.check(
            "no write was refused meanwhile",
            not any(writer.unexpected or writer.disconnected for writer in writers),
            [(writer.unexpected[:3], writer.disconnected) for writer in writers],
        )
        verify(report, server.api(), during, "the original afterwards", quiet=True)
        if not backup:
            return
        refused = settee(ctx, "backup", with_admin(server), ctx.root / "backup")
        report.check("a second backup into the same directory is refused or made whole", refused.returncode == 0 or refused.stderr.strip(), refused)
    if not ends_well(report, "restore", settee(ctx, "restore", ctx.root / "backup", ctx.root / "restored")):
        return
    again = settee(ctx, "restore", ctx.root / "backup", ctx.root / "restored")
    report.check("a restore over existing data is refused with a reason", again.returncode != 0 and again.stderr.strip(), again)
    with ctx.server("restored") as server:
        compare(report, server.api(), before, during, known)
    nothing = settee(ctx, "restore", ctx.root / "no-such-backup", ctx.root / "x")
    report.check("a restore from nothing is refused with a reason", nothing.returncode != 0 and nothing.stderr.strip(), nothing)


def test_killed(ctx):
    """A server that dies in the middle leaves no backup, and the next one goes on where it was."""
    report, target = ctx.report, ctx.folder("killed")
    server = ctx.server("killed-data", options=["--set", f"backup/max_rate={ctx.size(2_000_000, 20_000_000)}"]).start()
    ledger = Ledger("ledger")
    server.api().expect((201, 202), "PUT", "/ledger")
    fill(ctx, server.api(), ctx.size(6, 60))
    write(ctx, server, ledger, ctx.size(500, 5_000))
    # What a start has to compact is compacted now, and not between the kill and the next backup.
    server.stop()
    server.restart()
    back_up(ctx, server, ctx.folder("elsewhere"), {})
    # The next ones are under way for long enough to be looked at and killed.
    slow = ctx.size("400000", "4000000")
    server.api().expect(200, "PUT", "/_node/_local/_config/backup/max_rate", slow)
    command = start(ctx, "backup", with_admin(server), target)
    copied = lambda: (known(server)["running"] or {}).get("copied_files", 0)
    report.check("files are copied", wait_until(lambda: copied() >= 2, 120), known(server))
    tasks = [task for task in server.api().expect(200, "GET", "/_active_tasks") if task["type"] == "backup"]
    report.check("_active_tasks shows it", len(tasks) == 1 and tasks[0]["target"] == str(target), tasks)
    second = settee(ctx, "backup", with_admin(server), target)
    report.check("a second one is refused meanwhile", second.returncode == 1 and "under way" in second.stderr, second)
    server.kill()
    there = {path.name for path in (target / "files").glob("*/*") if "#" not in path.name}
    report.check("nothing there looks like a backup", listed(ctx, target) == [], listed(ctx, target))
    server.restart()
    command.wait(COMMAND_TIMEOUT_S)
    report.check("the command says that the server was restarted", command.returncode == 1, command.stderr.read())
    report.check("the checkpoint was removed", not (pathlib.Path(server.data) / "backup" / "checkpoint").exists())
    verify(report, server.api(), ledger, "after the kill", quiet=True)
    server.api().expect(200, "PUT", "/_node/_local/_config/backup/max_rate", "0")
    backup = back_up(ctx, server, target, {})
    files = {file["blake3"]: file["bytes"] for file in manifests(target)[0]["files"]}
    report.check("the next one needs files that are there", there & set(files), (there, files))
    missing = sum(size for name, size in files.items() if name not in there)
    report.equal("and copies those that were not, once", backup["copied_bytes"], missing)

    # A command that dies takes nothing with it.
    fill(ctx, server.api(), 2)
    server.api().expect(200, "PUT", "/_node/_local/_config/backup/max_rate", slow)
    command = start(ctx, "backup", with_admin(server), target)
    report.check("a backup begins", wait_until(lambda: known(server)["running"], 30), known(server))
    command.kill()
    command.wait()
    server.api().expect(200, "PUT", "/_node/_local/_config/backup/max_rate", "0")
    report.check("the server makes it without the command", wait_until(lambda: len(known(server)["ended"]) == 2, 120), known(server))
    report.equal("and it is whole", settee(ctx, "backup", "verify", target).returncode, 0)
    moment = Moment(server.api(), ledger, known(server)["ended"][-1])
    server.stop()
    restored = ctx.root / "killed-restored"
    settee(ctx, "restore", target, restored)
    with Server(ctx.binary, restored) as server:
        report.check("and has everything", everything(server.api()) == moment.state)


def test_flipped_bits(ctx):
    """A bit that flips at the target is found by verify and by restore; what does not need the file is restored."""
    report, target = ctx.report, ctx.folder("flipped")
    with ctx.server("flipped-data") as server:
        fill(ctx, server.api(), 1)
        first = back_up(ctx, server, target, {})
        fill(ctx, server.api(), 1)
        second = back_up(ctx, server, target, {})
    report.equal("all is whole at first", settee(ctx, "backup", "verify", target).returncode, 0)
    of = {backup["name"]: {file["blake3"] for file in backup["files"]} for backup in manifests(target)}
    only_second = sorted(of[second["name"]] - of[first["name"]])
    victims = {path.name: path for path in (target / "files").glob("*/*") if path.name in only_second and path.stat().st_size > 1_000}
    victim = victims[max(victims, key=lambda name: victims[name].stat().st_size)]
    content = bytearray(victim.read_bytes())
    content[ctx.random.randrange(len(content))] ^= 1 << ctx.random.randrange(8)
    victim.write_bytes(content)
    found = settee(ctx, "backup", "verify", target)
    report.check(
        "verify finds the bit, and names the backup", found.returncode == 1 and "damaged" in found.stderr and second["name"] in found.stderr, found
    )
    report.equal("the other backup is whole", settee(ctx, "backup", "verify", target, first["name"]).returncode, 0)
    bad = settee(ctx, "restore", target, ctx.root / "flipped-bad")
    report.check(
        "restore finds it too, and makes no store",
        bad.returncode == 1 and "damaged" in bad.stderr and not (ctx.root / "flipped-bad/store").exists(),
        bad,
    )
    good = settee(ctx, "restore", target, ctx.root / "flipped-good", "--name", first["name"])
    report.equal("the other one is restored", good.returncode, 0)
    victim.unlink()
    found = settee(ctx, "backup", "verify", target)
    report.check("a file that is gone is found", found.returncode == 1 and "missing" in found.stderr, found)

    description = target / "backups" / f"{second['name']}.json"
    text = description.read_text()
    description.write_text(text.replace('"bytes":', '"bytes":1', 1))
    found = settee(ctx, "backup", "verify", target)
    report.check("a changed description is found", found.returncode == 1 and second["name"] in found.stderr, found)
    pruned = settee(ctx, "backup", "prune", target, "--keep-last", "1")
    report.check("and nothing is pruned while nobody knows what it needs", pruned.returncode == 1 and len(manifests(target)) == 2, pruned)


def test_prune_beside_a_backup(ctx):
    report, target = ctx.report, ctx.folder("pruned")
    with ctx.server("pruned-data") as server:
        for _ in range(3):
            fill(ctx, server.api(), 1)
            back_up(ctx, server, target, {})
        fill(ctx, server.api(), 3)
        server.api().expect(200, "PUT", "/_node/_local/_config/backup/max_rate", "300000")
        command = start(ctx, "backup", with_admin(server), target)
        report.check("files are copied", wait_until(lambda: (known(server)["running"] or {}).get("copied_files", 0) >= 1, 60), known(server))
        dry = settee(ctx, "backup", "prune", target, "--keep-last", "1", "--dry-run")
        report.check("a dry run removes nothing", dry.returncode == 0 and "would be removed" in dry.stdout and len(manifests(target)) == 3, dry)
        pruned = settee(ctx, "backup", "prune", target, "--keep-last", "1")
        report.check("a prune leaves the files alone meanwhile", pruned.returncode == 0 and "under way" in pruned.stdout, pruned)
        report.equal("the backup ends well", command.wait(COMMAND_TIMEOUT_S), 0)
        report.equal("what is left is whole", settee(ctx, "backup", "verify", target).returncode, 0)
        report.equal("there are two", len(manifests(target)), 2)
        before = len(list((target / "files").glob("*/*")))
        pruned = settee(ctx, "backup", "prune", target, "--keep-last", "1")
        report.check("the next prune removes them", pruned.returncode == 0 and len(list((target / "files").glob("*/*"))) < before, pruned)
        report.equal("and what is left is whole", settee(ctx, "backup", "verify", target).returncode, 0)


def test_by_itself(ctx):
    """The settings have the server make and remove backups; failures are told, tried again, and harm nothing."""
    report, target = ctx.report, ctx.root / "by-itself"
    server = ctx.server("by-itself-data")
    for key, value in {"target": target, "every": "1", "keep_last": "2"}.items():
        server.configure("backup", key, value)
    with server:
        api = server.api()
        api.expect((201, 202), "PUT", "/db")
        made = lambda: counted(api, "made")
        report.check("backups are made", wait_until(lambda: made() >= 3, 60), known(server))
        report.check("no more are kept than asked for", wait_until(lambda: 1 <= len(manifests(target)) <= 3, 30), manifests(target))
        report.check("metrics tell when", counted(api, "last_success_unix_seconds") > 1_700_000_000)
        report.check("the next one is told", known(server)["scheduled"]["target"] == str(target), known(server))

        elsewhere = ctx.folder("occupied")
        (elsewhere / "photo").write_text("not a backup")
        server.configure("backup", "target", elsewhere)
        report.check("a failure is counted", wait_until(lambda: counted(api, "failed") >= 1, 30), known(server))
        # The log is written a little later than what it tells of.
        said = f"{elsewhere} contains files other than backups"
        report.check("and in the log in words", wait_until(lambda: said in server.log(), 10), server.log()[-1_000:])
        doctor = api.expect(200, "GET", "/_settee/doctor")
        report.check("doctor warns", str(elsewhere) in json.dumps(doctor), doctor)
        report.check("it is tried again", wait_until(lambda: counted(api, "failed") >= 3, 30), known(server))
        report.equal("writes go on", api.put("/db/x", {}).status, 201)
        report.equal("and nothing is left there", [path.name for path in elsewhere.iterdir()], ["photo"])
        count = made()
        server.configure("backup", "target", target)
        report.check("a right setting counts at once", wait_until(lambda: made() > count, 120), known(server))
        report.check("and doctor has no more to say of it", str(elsewhere) not in json.dumps(api.expect(200, "GET", "/_settee/doctor")))
        last = known(server)["last_success"]["time"]
    with server:
        report.check(
            "after a restart it goes on", wait_until(lambda: (known(server)["last_success"] or {"time": ""})["time"] > last, 120), known(server)
        )


def test_refused(ctx):
    report = ctx.report
    target = ctx.folder("refused")
    with ctx.server("refused-data") as server, ctx.server("refused-other") as other:
        back_up(ctx, server, target, {})
        theirs = settee(ctx, "backup", with_admin(other), target)
        report.check("a target is one server's", theirs.returncode == 1 and "another server" in theirs.stderr, theirs)
        secret = "s3://name:geheim@bucket/x"
        said = settee(ctx, "backup", with_admin(server), secret)
        report.check("a password in a target is refused, and not repeated", said.returncode == 1 and "geheim" not in said.stderr + server.log(), said)
        for body in ({"target": "relative"}, {"target": 1}, {}, {"target": "x://y"}):
            report.equal(f"{body} is refused", server.api().post("/_settee/backup", body).status, 400, quiet=True)
        report.equal("only admins see backups", Api(server.url, None).get("/_settee/backup").status, 401)
        copied = settee(ctx, "backup", with_admin(server), ctx.root / "plain", "--copy")
        report.check("with --copy a new directory becomes one copy", copied.returncode == 0 and (ctx.root / "plain/CURRENT").is_file(), copied)
        again = settee(ctx, "backup", with_admin(server), ctx.root / "plain", "--copy")
        report.check("once", again.returncode == 1 and "plain" in again.stderr, again)
    chosen = settee(ctx, "restore", ctx.root / "plain", ctx.root / "x", "--name", "y")
    report.check("of which none is chosen", chosen.returncode == 2 and "a plain copy" in chosen.stderr, chosen)
    for words in (
        ["backup", "prune", target],
        ["restore", target, ctx.root / "x", "--at", "yesterday"],
        ["restore", target, ctx.root / "x", "--at", "2026-11-24"],
    ):
        done = settee(ctx, *words)
        report.check(f"{words[:2]} without what it needs is refused", done.returncode == 2 and not (ctx.root / "x/store").exists(), done)
    none = settee(ctx, "backup", "list", ctx.root / "plain")
    report.check("a copy is no place of backups", none.returncode == 1 and "no backups: it is a plain copy" in none.stderr, none)


def test_a_directory_of_the_user(ctx):
    """A backup goes where the user says, below the user's own directory, and `list` finds it there, whether it was there before or not."""
    report, home = ctx.report, ctx.folder("home")
    here = lambda *words: settee(ctx, "backup", *words, cwd=home)
    with ctx.server("data-elsewhere") as server:
        for target in ("./new", "deep/er", "there"):
            if target == "there":
                (home / target).mkdir()
            for count in (1, 2):
                made = here(with_admin(server), target)
                report.check(f"{target}: backup {count} is made", made.returncode == 0 and f"{home}/" in made.stdout, made)
                names = here("list", target, "--json")
                report.check(f"{target}: {count} are listed", names.returncode == 0 and len(json.loads(names.stdout)) == count, names)
            report.equal(f"{target}: they are whole", here("verify", target).returncode, 0)
            report.equal(f"{target}: one is restored", settee(ctx, "restore", target, f"{target}-restored", cwd=home).returncode, 0)
            report.equal(f"{target}: no permit is left", list(home.rglob(".settee-permit-*")), [])
        elsewhere = "http://admin:admin@db.example:5984"
        refused = here(elsewhere, "./new")
        report.check("a server elsewhere knows no directory of the user", refused.returncode == 2 and "on db.example" in refused.stderr, refused)
        (home / "file").write_text("x")
        for target, said in (("file", "file"), ("file/below", "file")):
            refused = here(with_admin(server), target)
            report.check(f"{target} is refused, with the path", refused.returncode == 1 and said in refused.stderr, refused)


def test_object_store(ctx):
    """All of it with a bucket; keys are in the environment or in the settings, and are shown nowhere."""
    report = ctx.report
    store = ObjectStore(ctx).start()
    store.bucket("backups")
    target, environment = "s3://backups/one/server", store.environment()
    with changed_environment(environment), ctx.server("s3-data", options=TO_BUCKETS) as server:
        history = history_of(ctx, server, target, ctx.size(2, 8), environment)
        fill(ctx, server.api(), 1, bytes_each=20_000_000)
        large = back_up(ctx, server, target, environment)
        report.check("large files are copied in parts", large["copied_bytes"] > 20_000_000, large)
    check_history(ctx, history, target, environment)
    report.equal("verify finds all whole", settee(ctx, "backup", "verify", target, environment=environment).returncode, 0)
    pruned = settee(ctx, "backup", "prune", target, "--keep-last", "1", environment=environment)
    report.equal("prune ends well", pruned.returncode, 0)
    report.equal("one stays", len(listed(ctx, target, environment)), 1)
    report.equal("which is whole", settee(ctx, "backup", "verify", target, environment=environment).returncode, 0)
    wrong = settee(ctx, "backup", "list", target, environment=store.environment(secret="another"))
    report.check("a wrong key is told", wrong.returncode == 1 and "another" not in wrong.stderr, wrong)

    keys = {"s3_endpoint": store.url, "s3_region": "us-east-1", "s3_access_key_id": environment["AWS_ACCESS_KEY_ID"], "s3_secret_access_key": SECRET}
    with ctx.server("s3-settings", options=TO_BUCKETS) as server:
        api = server.api()
        for key, value in keys.items():
            server.configure("backup", key, value)
        back_up(ctx, server, "s3://backups/two", {})
        told = [
            api.get(path).raw
            for path in (
                "/_node/_local/_config",
                "/_node/_local/_config/backup",
                "/_node/_local/_config/backup/s3_secret_access_key",
                "/_node/_local/_settee/settings",
                "/_settee/backup",
            )
        ]
        told += [api.put("/_node/_local/_config/backup/s3_secret_access_key", SECRET).raw, server.log().encode()]
        report.check("the key in the settings is shown nowhere", not any(SECRET.encode() in text for text in told))
        report.equal("but is used", known(server)["last_failure"], None)
    store.stop()


def test_where_backups_may_go(ctx):
    """Over HTTP an admin of the server has no backups go where the operator did not allow any; the command shows that it may write."""
    report = ctx.report
    allowed, elsewhere, below = ctx.folder("allowed"), ctx.folder("elsewhere"), ctx.folder("elsewhere/below")
    (allowed / "link").symlink_to(elsewhere)
    options = ["--set", f"backup/targets={allowed}, s3://backups/some", "--set", "backup/s3_endpoint=http://127.0.0.1:9"]
    with ctx.server("bounded-data", options=options) as server:
        api = server.api()
        post = lambda body: api.post("/_settee/backup", body)
        refused = (
            {"target": str(elsewhere)},
            {"target": f"file://{elsewhere}/new"},
            {"target": str(elsewhere / "new")},
            {"directory": str(elsewhere / "new")},
            {"target": f"{allowed}/../elsewhere"},
            {"target": str(allowed / "link")},
            {"directory": str(allowed / "link/new")},
            {"target": "s3://backups"},
            {"target": "s3://backups/something"},
            {"target": "s3://other/some"},
            {"target": str(elsewhere), "permit": "../allowed"},
            {"target": str(elsewhere), "permit": ".settee-permit-" + "0" * 32},
        )
        for body in refused:
            answer = post(body)
            named = answer.status == 403 and "[backup] targets" in answer.json["reason"]
            report.check(f"{body}: refused by the name of the setting", named, answer)
        report.equal("and nothing was written", sorted(path.name for path in elsewhere.iterdir()), ["below"])
        over_http = api.put("/_node/_local/_config/backup/targets", str(elsewhere))
        report.equal("the setting is the operator's", over_http.status, 403)
        report.equal("a copy below an allowed directory", post({"directory": str(allowed / "copy")}).status, 201)
        report.equal("backups below it", post({"target": f"file://{allowed}/place"}).status, 202)
        report.check("are made", wait_until(lambda: known(server)["last_success"]), known(server))
        back_up(ctx, server, below, {})
        report.equal("the command writes where it may", [path.name for path in below.glob(".settee*")], [])
        report.equal("where backups of this server are, one more", post({"target": str(below)}).status, 202)
        report.check("is made", wait_until(lambda: known(server)["running"] is None and len(known(server)["ended"]) == 3), known(server))
        report.equal("all well", known(server)["last_failure"], None)
    with ctx.server("bounded-other") as other:
        report.equal("not where another server's are", other.api().post("/_settee/backup", {"target": str(below)}).status, 403)


def test_words_of_an_object_store(ctx):
    """What an object store says is in the log, and not in answers."""
    report = ctx.report
    store = ObjectStore(ctx, "objects-refusing").start()
    store.bucket("backups")
    with changed_environment(store.environment(secret="wrong")), ctx.server("refused-keys", options=TO_BUCKETS) as server:
        done = settee(ctx, "backup", with_admin(server), "s3://backups/x")
        report.check("a wrong key fails the backup", done.returncode == 1 and "s3://backups/x" in done.stderr and "log" in done.stderr, done)
        reason = known(server)["last_failure"]["reason"]
        told = reason + done.stderr
        report.check("without the store's words", "Signature" not in told and "<" not in told and "http" not in reason, told)
        report.check("which the log has", "Signature" in server.log(), server.log()[-2000:])
    store.stop()


def test_broken_connections(ctx):
    """Connections that break are tried again; a target that is gone fails the backup, and nothing else."""
    report = ctx.report
    store = ObjectStore(ctx, "objects-broken").start()
    store.bucket("backups")
    # A request sends up to 8 MiB: every second connection lasts that long.
    with FlakyProxy(store.url, ctx.random, mean_bytes=3_000_000, cut_share=0.5) as proxy:
        environment = store.environment(proxy.url)
        with changed_environment(environment), ctx.server("broken-data", options=TO_BUCKETS) as server:
            for number in range(ROUNDS_MAX):
                if number >= ctx.size(1, 10) and proxy.cuts:
                    break
                fill(ctx, server.api(), ctx.size(8, 40))
                back_up(ctx, server, "s3://backups/x", environment)
            report.check("connections were lost", proxy.cuts > 0, proxy.cuts)
            report.note(f"{proxy.cuts} of {proxy.connections} connections were cut")
            moment = everything(server.api())
            report.equal("the backups are whole", settee(ctx, "backup", "verify", "s3://backups/x", environment=store.environment()).returncode, 0)
        done = settee(ctx, "restore", "s3://backups/x", ctx.root / "broken-restored", environment=environment)
        report.equal("restored over such a line", done.returncode, 0)
        with Server(ctx.binary, ctx.root / "broken-restored") as server:
            report.check("everything is there", everything(server.api()) == moment)
    store.stop()


# What the parts above are made of.


def settee(ctx, *words, environment=None, cwd=None):
    command = [pathlib.Path(ctx.binary).resolve(), *map(str, words)]
    environment = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False, env=environment, cwd=cwd)


def ends_well(report, name, done):
    return report.check(f"{name} exits with 0", done.returncode == 0, done)


def start(ctx, *words):
    return subprocess.Popen([ctx.binary, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def with_admin(server):
    return server.url.replace("://", f"://{server.admin}@")


def known(server):
    return server.api().expect(200, "GET", "/_settee/backup")


def counted(api, name):
    return api.expect(200, "GET", f"/_node/_local/_stats/settee/backups/{name}")["value"]


def back_up(ctx, server, target, environment):
    done = settee(ctx, "backup", with_admin(server), target, environment=environment)
    ctx.report.check("settee backup ends with 0", done.returncode == 0, done, quiet=True)
    return known(server)["last_success"]


def listed(ctx, target, environment=None):
    done = settee(ctx, "backup", "list", target, "--json", environment=environment)
    ctx.report.check("settee backup list ends with 0", done.returncode == 0, done, quiet=True)
    return json.loads(done.stdout)


def manifests(target):
    return [json.loads(path.read_text())["backup"] for path in sorted((target / "backups").glob("*.json"))]


def copy_of(ledger):
    with ledger._changed:
        of = Ledger(ledger.db)
        of.acknowledged, of.locals, of.databases = (copy.deepcopy(part) for part in (ledger.acknowledged, ledger.locals, ledger.databases))
        return of


def write(ctx, server, ledger, count):
    """Writers run until so many more edits are acknowledged."""
    stop, wanted = threading.Event(), ledger.count + count
    writers = [
        kind(server.api(), ledger, f"w{ledger.count}-{at}", ctx.random.getrandbits(32), stop)
        for at, kind in enumerate((BulkWriter, SerialWriter, LocalWriter))
    ]
    for writer in writers:
        writer.start()
    ctx.report.check("documents are written", ledger.wait_for(wanted, 300), ledger.count, quiet=True)
    stop.set()
    for writer in writers:
        writer.join(30)
    ctx.report.check(
        "and none is refused", not any(writer.unexpected for writer in writers), [writer.unexpected[:3] for writer in writers], quiet=True
    )


def fill(ctx, api, count, bytes_each=1_000_000):
    """Attachments that no compression makes smaller, so that there is something to copy."""
    api.put("/fill")
    for _ in range(count):
        name, content = f"{ctx.random.getrandbits(64):x}", ctx.random.randbytes(bytes_each)
        answer = api.put(f"/fill/{name}/bytes", content, headers={"Content-Type": "application/octet-stream"})
        assert answer.status in (201, 202), answer
