"""Python's `aiocouch`, the asyncio client."""

import asyncio

import aiocouch

from checks import NAME, PASSWORD, URL, check, equal

DB = "client-aiocouch"


async def raises(name, kind, awaitable):
    try:
        got = await awaitable
    except kind:
        check(name, True)
    else:
        check(name, False, f"no {kind.__name__}, but {got!r}")


async def main():
    async with aiocouch.CouchDB(URL, user=NAME, password=PASSWORD) as couchdb:
        await couchdb.check_credentials()
        equal("info", (await couchdb.info())["couchdb"], "Welcome")
        db = await couchdb.create(DB)
        await raises("create it again", aiocouch.PreconditionFailedError, couchdb.create(DB))
        await raises("open a missing one", aiocouch.NotFoundError, couchdb["client-aiocouch-none"])
        check("databases", DB in await couchdb.keys())
        await documents(db)
        await bulk(db)
        await views(db)
        await changes(db)
        await attachments(db)
        await security(couchdb, db)
        await db.delete()
        check("delete the database", DB not in await couchdb.keys())
    wrong = aiocouch.CouchDB(URL, user=NAME, password="wrong")
    await raises("a wrong password", aiocouch.UnauthorizedError, wrong.check_credentials())
    await wrong.close()


async def documents(db):
    doc = await db.create("a b/ü+", data={"name": "Jöhn 🙂", "when": 1.5})
    await doc.save()
    first = doc.rev
    equal("create and get", dict((await db["a b/ü+"]).items()), {"_id": "a b/ü+", "_rev": first, "name": "Jöhn 🙂", "when": 1.5})
    doc["name"] = "Peter"
    await doc.save()
    equal("update", (await db["a b/ü+"])["name"], "Peter")
    equal("an old revision", (await db.get("a b/ü+", rev=first))["name"], "Jöhn 🙂")
    equal("revs", await doc.revs() if hasattr(doc, "revs") else None, [doc.rev, first])
    equal("info by HEAD", (await doc.info())["rev"], doc.rev)
    stale = await db.get("a b/ü+", rev=first)
    stale["late"] = True
    await raises("conflict", aiocouch.ConflictError, stale.save())
    await raises("a missing document", aiocouch.NotFoundError, db["none"])
    await doc.copy("copied")
    copied = await db["copied"]
    equal("copy", copied["name"], "Peter")
    await copied.delete()
    await raises("a deleted document", aiocouch.NotFoundError, db["copied"])
    async with aiocouch.Document(db, "by context") as made:
        made["made"] = True
    equal("a document by context", (await db["by context"])["made"], True)


async def bulk(db):
    async with db.create_docs([f"bulk-{n:03d}" for n in range(50)]) as made:
        async for doc in made:
            doc["n"] = int(doc.id[-3:])
    equal("bulk create", (len(made.ok), len(made.error)), (50, 0))
    async with db.update_docs([f"bulk-{n:03d}" for n in range(3)] + ["bulk-new"], create=True) as updated:
        async for doc in updated:
            doc["updated"] = True
    equal("bulk update", (len(updated.ok), len(updated.error)), (4, 0))
    equal("the updated", [doc["n"] async for doc in db.docs(["bulk-001", "bulk-002"]) if doc["updated"]], [1, 2])
    equal("by prefix", [doc.id async for doc in db.docs(prefix="bulk-01")], [f"bulk-01{n}" for n in range(10)])
    equal("keys", len([key async for key in db.akeys()]), (await db.info())["doc_count"])


async def views(db):
    design = await db.design_doc("aiocouch")
    await design.create_view("by_n", map_function="function (doc) { if (doc.n !== undefined) { emit(doc.n % 3, doc.n); } }", reduce_function="_sum")
    view = db.view("aiocouch", "by_n")
    rows = await view.get(reduce=False, key=1, limit=3)
    equal("view", list(rows.items()), [(1, 1), (1, 4), (1, 7)])
    equal("documents of a view", [doc["n"] async for doc in view.docs(reduce=False, descending=True, limit=2)], [47, 44])


async def changes(db):
    seen = [event.id async for event in db.changes()]
    info = await db.info()
    equal("changes", len(seen), info["doc_count"] + info["doc_del_count"])
    live = []

    async def listen():
        async for event in db.changes(feed="continuous", heartbeat=500, since=info["update_seq"], include_docs=True):
            live.append((await event.doc())["live"] if isinstance(event, aiocouch.event.ChangedEvent) else None)
            if len(live) == 3:
                return

    listening = asyncio.create_task(listen())
    for n in (1, 2, 3):
        doc = await db.create(f"live-{n}", data={"live": n})
        await doc.save()
    await asyncio.wait_for(listening, 30)
    equal("changes, continuous", live, [1, 2, 3])


async def attachments(db):
    text, data = ("So she said “yes”.\n" * 200).encode(), bytes(n * 7919 % 256 for n in range(5000))
    doc = await db.create("attached", data={"with": "attachments"})
    await doc.save()
    note, blob = doc.attachment("note.txt"), doc.attachment("blob.bin")
    check("no attachment yet", not await note.exists())
    await note.save(text, "text/plain")
    await blob.save(data, "application/octet-stream")
    equal("a text attachment", await doc.attachment("note.txt").fetch(), text)
    equal("a binary attachment", await doc.attachment("blob.bin").fetch(), data)
    stubs = (await db["attached"])["_attachments"]
    equal(
        "stubs",
        {name: (stub["content_type"], stub["length"], stub["stub"]) for name, stub in stubs.items()},
        {"note.txt": ("text/plain", len(text), True), "blob.bin": ("application/octet-stream", 5000, True)},
    )
    await note.delete()
    equal("delete an attachment", list((await db["attached"])["_attachments"]), ["blob.bin"])
    await raises("an attachment that is gone", aiocouch.NotFoundError, note.fetch())


async def security(couchdb, db):
    security_doc = await db.security()
    security_doc.add_member("aio-anna")
    security_doc.add_admin("aio-boss")
    security_doc.add_member_role("nurse")
    await security_doc.save()
    again = await db.security()
    equal("security", (again.members, again.admins, again.member_roles), (["aio-anna"], ["aio-boss"], ["_admin", "nurse"]))
    users = await couchdb["_users"]
    user = await users.create("org.couchdb.user:aio-anna", data={"name": "aio-anna", "password": "sécret", "roles": [], "type": "user"})
    await user.save()
    async with aiocouch.CouchDB(URL, user="aio-anna", password="sécret") as hers:
        equal("a member reads", (await (await hers[DB])["bulk-001"])["n"], 1)
        await raises("a member creates no database", aiocouch.UnauthorizedError, hers.create("client-aiocouch-hers"))
    user = await users["org.couchdb.user:aio-anna"]
    await user.delete()


asyncio.run(main())
print("done")
