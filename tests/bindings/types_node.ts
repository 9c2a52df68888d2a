// Looked at by tsc, not run: what the package says of its types, and what it must refuse.

import { Readable } from "node:stream";
import { ids, open, SetteeError, type Change, type Database, type Row, type Written } from "settee";

import type { AttachmentIn } from "settee";

interface Note {
  text: string;
}

async function documents(db: Database): Promise<void> {
  const written: Written = await db.put({ _id: "a" });
  const note = await db.get<Note>("a");
  const rev: string = note._rev;
  const text: string = note.text + rev + written.id;
  const raw: string = await db.get("a", { raw: true });
  await db.load(Readable.from([{ _id: text }]), { batch: 10, onProgress: ({ done }) => console.log(done, raw) });
  // @ts-expect-error A number is no document.
  await db.put(1);
  // @ts-expect-error There is no such option.
  await db.get("a", { nonsense: true });
}

async function rows(db: Database): Promise<void> {
  const signal = AbortSignal.timeout(1000);
  for await (const row of await db.view<number, Note>("d", "v", { startkey: ["a", 1], signal })) {
    const typed: Row<number, Note> = row;
    console.log(typed.value.toFixed(), typed.doc?.text);
  }
  for await (const text of await db.allDocs({ raw: true })) console.log(text.length);
  for await (const change of await db.changes<Note>({ live: true, signal, include_docs: true })) {
    const typed: Change<Note> = change;
    console.log(typed.doc?.text);
  }
  const found = await db.find<Note>({ text: "x" }, { sort: [{ text: "desc" }] });
  const notes: Note[] = await found.toArray();
  console.log(notes, found.totalRows);
  // @ts-expect-error A limit is a number.
  await db.view("d", "v", { limit: "1" });
}

function made(): void {
  const newId = ids.sequential("a/");
  const id: string = newId();
  for (const other of ids.monotonic()) console.log(other, id, newId.prefix);
  // @ts-expect-error A prefix is text.
  ids.sequential(1);
}

async function files(db: Database): Promise<void> {
  const reader = await db.openAttachment("a", "x", { start: 1 });
  const type: string = reader.contentType;
  const writer = await db.createAttachment("a", "x", { contentType: type });
  reader.pipe(writer).on("finish", () => console.log(writer.written?.rev));
  const file: AttachmentIn = { content_type: "a/b", data: async () => new Uint8Array(1) };
  await db.bulk([{ _id: "a", _attachments: { file } }]);
  // @ts-expect-error A document is no attachment.
  await db.putAttachment("a", "x", { a: 1 });
}

export async function all(): Promise<void> {
  await using directory = await open("data", { q: 1, functions: { timeLimitMs: 100 } });
  try {
    const db = await directory.create("a", { existOk: true });
    await documents(db);
    await rows(db);
    await files(db);
    made();
  } catch (failure) {
    if (failure instanceof SetteeError && failure.status === 404) console.log(failure.reason);
  }
  // @ts-expect-error There is no such option.
  await open("data", { nonsense: 1 });
}
