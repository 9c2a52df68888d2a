// Settee's databases in this process: documents, views, queries and changes, without a server.

/// <reference types="node" />

import type { Readable, Writable } from "node:stream";

/** The version of the package. */
export const version: string;

/** A value as JSON has it. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** What a document has besides what you put into it. */
export interface Meta {
  _id: string;
  _rev: string;
  _deleted?: true;
  _conflicts?: string[];
  _deleted_conflicts?: string[];
  _local_seq?: string;
  _revisions?: { start: number; ids: string[] };
  _revs_info?: { rev: string; status: string }[];
  _attachments?: Record<string, AttachmentStub>;
}

/** What a document tells of an attachment. */
export interface AttachmentStub {
  content_type: string;
  revpos: number;
  digest: string;
  length?: number;
  stub?: true;
  data?: string;
}

/**
 * A document to be written: an object, or its JSON text, which is taken as it is. NaN, infinities, BigInts and functions in an object are
 * refused by a TypeError. JavaScript writes `1.0` as `1`, and rounds integers beyond 2^53 when it reads them: text keeps both.
 */
export type DocumentIn = object | string | Buffer;

/**
 * What `data` of an attachment in a document of a bulk may be besides text in Base64: bytes, a stream, pieces of bytes, or a function
 * that returns one of them. It is stored as it is read.
 */
export type AttachmentContent = Uint8Array | Readable | AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** An attachment of a document of a bulk. */
export interface AttachmentIn {
  content_type?: string;
  data: string | AttachmentContent | (() => AttachmentContent | Promise<AttachmentContent>);
}

/** A document as it was written. */
export interface Written {
  id: string;
  rev: string;
}

/** What became of a document of a bulk. */
export interface Outcome {
  id: string;
  ok?: true;
  rev?: string;
  error?: string;
  reason?: string;
}

/** What the database refused, or what failed, in CouchDB's words. */
export class SetteeError extends Error {
  /** What the server would answer: 404, 409, 412, … */
  readonly status: number;
  /** A word for programs: `not_found`, `conflict`. */
  readonly error: string;
  /** A sentence for people. */
  readonly reason: string;
}

/** A source of ids, which never ends: call it, or iterate over it. */
export interface Ids extends IterableIterator<string> {
  (): string;
  /** What each id starts with. */
  readonly prefix: string;
}

/**
 * Ids for documents, made in this process: a prefix and 32 hexadecimal digits. Each is greater than all ids of its kind and prefix that
 * this process made before; those of different processes differ.
 */
export const ids: {
  /** They start at a random number and grow by random steps, as the server's `sequential` ones do, and do not show when they were made. */
  sequential(prefix?: string): Ids;
  /** UUIDs of version 7: ids of different processes are in the order of their milliseconds, as far as the clocks agree. */
  monotonic(prefix?: string): Ids;
};

export interface OpenOptions {
  /** Make the directory when it is not there; true unless it is said. */
  create?: boolean;
  /** Shards of a new database; 2 unless it is said. */
  q?: number;
  /** Memory for blocks of files that were read, in bytes (256 MiB). */
  cacheBytes?: number;
  /** Memory for documents that were read lately, in bytes (128 MiB). */
  documentsBytes?: number;
  /** Memory for what is not yet in files, in bytes (96 MiB). */
  writeBuffersBytes?: number;
  /** Memory for the rows of index builds, in bytes (256 MiB). */
  indexBuildsBytes?: number;
  /** Memory for rows of indexes that are read often, in bytes (64 MiB). */
  indexRowsBytes?: number;
  /** Keep indexes up before anybody asks; true unless it is said. */
  backgroundIndexing?: boolean;
  /** Compact by itself; true unless it is said. */
  autoCompact?: boolean;
  /** Keep what is before the damage of a log, and lose what follows. */
  acceptDamagedLog?: boolean;
  /** How the JavaScript of design documents runs. */
  functions?: {
    /** The program `settee`, which then runs it in processes of their own. */
    program?: string;
    /** Time for one document, in milliseconds (5000). */
    timeLimitMs?: number;
    /** Memory of one heap, in bytes (64 MiB). */
    memoryLimitBytes?: number;
  };
}

/**
 * Opens a directory of databases. It is refused with 423 `in_use` when it is open already, in this process or another. That of a server's data may
 * be opened too, while the server does not run.
 */
export function open(path: string, options?: OpenOptions): Promise<Directory>;

/** An open directory. */
export class Directory {
  private constructor();
  /** Where the store is. */
  readonly path: string;
  /** Whether it was closed. */
  readonly closed: boolean;
  /** Names of databases, in their order. */
  names(): Promise<string[]>;
  /** Whether there is a database of this name. */
  has(name: string): Promise<boolean>;
  /** The database of this name; 404 when there is none. */
  database(name: string): Promise<Database>;
  /** Makes a database; 412 `file_exists` when there is one, unless `existOk`. */
  create(name: string, options?: { q?: number; partitioned?: boolean; existOk?: boolean }): Promise<Database>;
  /** Deletes a database. */
  delete(name: string): Promise<void>;
  /** Compactions and index builds under way, as of `/_active_tasks`. */
  tasks(): Promise<Record<string, Json>[]>;
  /** Ends what is under way, writes what is queued, and lets go of the directory. A second time does nothing. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface GetOptions {
  /** This revision in place of the winning one. */
  rev?: string;
  /** The leaf that `rev` has become. */
  latest?: boolean;
  revs?: boolean;
  revs_info?: boolean;
  conflicts?: boolean;
  deleted_conflicts?: boolean;
  local_seq?: boolean;
  /** With attachments' bytes, in Base64. */
  attachments?: boolean;
}

export interface WriteOptions {
  /** False for revisions that come with their ids, as from a replicator. */
  newEdits?: boolean;
  /** Acknowledge at once; it is on the disk within a second. */
  delayed?: boolean;
}

/** How far a long job has come. */
export interface Progress {
  done: number;
  total: number;
}

export interface LoadOptions extends WriteOptions {
  /** Documents of one commit; 1000 unless it is said. */
  batch?: number;
  /** Ends the load between two commits: what was done before stays. */
  signal?: AbortSignal;
  /** Called after each commit with the number of documents done. */
  onProgress?: (progress: { done: number }) => void;
}

export interface RangeOptions<Key> {
  key?: Key;
  keys?: Key[];
  startkey?: Key;
  endkey?: Key;
  inclusive_end?: boolean;
  limit?: number;
  skip?: number;
  descending?: boolean;
  include_docs?: boolean;
  conflicts?: boolean;
  /** With `include_docs`: with attachments' bytes, in Base64. */
  attachments?: boolean;
  update_seq?: boolean;
  partition?: string;
}

export interface AllDocsOptions extends RangeOptions<string> {
  only?: "_design_docs" | "_local_docs";
}

/** Ends the waiting for an index, which is built on until the directory is closed. */
export interface Waiting {
  signal?: AbortSignal;
  /** Called now and then with changes done and their number while the index is built. */
  onProgress?: (progress: Progress) => void;
}

export interface ViewOptions extends RangeOptions<unknown>, Waiting {
  startkey_docid?: string;
  endkey_docid?: string;
  reduce?: boolean;
  group?: boolean;
  group_level?: number;
  /** False for the index as it is, "lazy" to bring it up to date afterwards. */
  update?: boolean | "lazy";
}

export interface FindOptions {
  fields?: string[];
  sort?: (string | Record<string, "asc" | "desc">)[];
  /** All that match, unless it is said. */
  limit?: number;
  skip?: number;
  use_index?: string | [string, string];
  bookmark?: string;
  conflicts?: boolean;
  update?: boolean;
  execution_stats?: boolean;
  allow_fallback?: boolean;
  aggregate?: object;
}

export interface ChangesOptions {
  /** A `seq` to go on behind, or "now". */
  since?: string;
  /** Wait for what comes. */
  live?: boolean;
  /** But no longer than so many milliseconds for the next. Iterated again it goes on. */
  timeout?: number;
  limit?: number;
  descending?: boolean;
  /** Rows name all leaves, not only the winning revision. */
  all_leaves?: boolean;
  include_docs?: boolean;
  conflicts?: boolean;
  attachments?: boolean;
  doc_ids?: string[];
  selector?: object;
  fields?: string[];
  /** Only changes of design documents. */
  design?: boolean;
  /** Ends the waiting. */
  signal?: AbortSignal;
}

/** A row of a listing or a view. */
export interface Row<Value = any, Doc = any> {
  id: string;
  key: any;
  value: Value;
  doc?: Doc | null;
  error?: string;
}

/** A change. */
export interface Change<Doc = any> {
  seq: string;
  id: string;
  changes: { rev: string }[];
  deleted?: true;
  doc?: Doc;
}

interface Cursor<T> extends AsyncIterableIterator<T> {
  /** All that are left. */
  toArray(): Promise<T[]>;
  /** Lets go of its snapshot; who iterates to the end, or leaves a `for await`, need not. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Rows from one snapshot, read as they are asked for: each is given once. */
export interface Rows<T = Row> extends Cursor<T> {
  /** Rows of all of the view or database; not of reductions and queries. */
  readonly totalRows: number | undefined;
  /** Rows before the first one. */
  readonly offset: number | undefined;
  /** The update seq that the rows stand for, when it was asked for. */
  readonly updateSeq: string | undefined;
  /** What is known once all rows were given: of a query `bookmark`, `warning`, `execution_stats`. */
  tail(): Promise<Record<string, Json>>;
}
export const Rows: { readonly prototype: Rows };

/** Changes; a feed that is `live` waits for what comes. */
export interface Changes<T = Change> extends Cursor<T> {
  /** In milliseconds; may be changed at any time. */
  timeout: number | undefined;
  /** The seq to go on from later: behind the rows that were read from the database. Each row has its own, `seq`. */
  lastSeq(): Promise<string>;
}
export const Changes: { readonly prototype: Changes };

/** An attachment as a stream. */
export interface AttachmentReader extends Readable {
  readonly contentType: string;
  /** Bytes of the whole. */
  readonly length: number;
  readonly digest: string;
}

/** A stream that becomes an attachment when it is ended; destroyed before, it leaves nothing. */
export interface AttachmentWriter extends Writable {
  /** The document as it was written, once the stream has finished. */
  readonly written: Written | undefined;
}

type Raw = { raw: true };
type Parsed = { raw?: false };

/** A database. With `raw: true` documents and rows are JSON text in place of values. */
export class Database {
  private constructor();
  readonly name: string;
  /** Counts and sizes, as of `GET /{db}`. */
  info(): Promise<Record<string, Json> & { doc_count: number; doc_del_count: number; update_seq: string }>;
  /** Starts a compaction in the background. */
  compact(): Promise<void>;

  /** A document; 404 `not_found` when there is none. */
  get<T = Record<string, any>>(id: string, options?: GetOptions & Parsed): Promise<T & Meta>;
  get(id: string, options: GetOptions & Raw): Promise<string>;
  /** Writes a document. One without `_id` is given one; one that is there needs its `_rev`, or it is a 409 `conflict`. */
  put(document: DocumentIn, options?: WriteOptions): Promise<Written>;
  /** Deletes a document. */
  delete(id: string, rev: string, options?: WriteOptions): Promise<Written>;
  /**
   * Writes documents in one commit, and answers what became of each, in their order. Attachments may be streams: see `AttachmentIn`. An
   * error of a stream ends the bulk: nothing is written.
   */
  bulk(documents: DocumentIn[], options?: WriteOptions): Promise<Outcome[]>;
  /** Writes many documents, as they come. Attachments may be streams, as of `bulk`. */
  load(
    documents: Iterable<DocumentIn> | AsyncIterable<DocumentIn>,
    options?: LoadOptions,
  ): Promise<{ written: number; failed: Outcome[] }>;

  /** Documents by id. */
  allDocs<Doc = any>(options?: AllDocsOptions & Parsed): Promise<Rows<Row<{ rev: string; deleted?: true }, Doc>>>;
  allDocs(options: AllDocsOptions & Raw): Promise<Rows<string>>;
  /** Rows of a view, whose index is brought up to date first. */
  view<Value = any, Doc = any>(design: string, view: string, options?: ViewOptions & Parsed): Promise<Rows<Row<Value, Doc>>>;
  view(design: string, view: string, options: ViewOptions & Raw): Promise<Rows<string>>;
  /** Brings the index of a design document up to date. */
  buildIndex(design: string, options?: Waiting): Promise<void>;

  /** Documents that match, as of `_find`, read as they are asked for. With `aggregate` the rows are groups. */
  find<T = Record<string, any>>(
    selector: object,
    options?: FindOptions & Parsed & { signal?: AbortSignal },
  ): Promise<Rows<T>>;
  find(selector: object, options: FindOptions & Raw & { signal?: AbortSignal }): Promise<Rows<string>>;
  /** Which index would answer a query, as of `_explain`. */
  explain(selector: object, options?: FindOptions): Promise<Record<string, Json>>;
  /** The indexes of queries, that of all documents first. */
  indexes(): Promise<Record<string, Json>[]>;
  /** Makes an index of queries, unless it is there. */
  createIndex(
    fields: (string | Record<string, "asc" | "desc">)[],
    options?: { name?: string; ddoc?: string; partitioned?: boolean; partial_filter_selector?: object },
  ): Promise<{ result: "created" | "exists"; id: string; name: string }>;
  /** Deletes an index of queries. */
  deleteIndex(ddoc: string, name: string): Promise<void>;

  /** Changes, each document once, at its newest one. */
  changes<Doc = any>(options?: ChangesOptions & Parsed): Promise<Changes<Change<Doc>>>;
  changes(options: ChangesOptions & Raw): Promise<Changes<string>>;

  /** An attachment as a stream; `start` and `end` are those of a range of its bytes. */
  openAttachment(
    id: string,
    name: string,
    options?: { rev?: string; start?: number; end?: number },
  ): Promise<AttachmentReader>;
  /** A stream that becomes an attachment of the revision `rev` of a document, or of a new document. */
  createAttachment(id: string, name: string, options?: { rev?: string; contentType?: string }): Promise<AttachmentWriter>;
  /** Writes an attachment: bytes, text, or what a stream gives. */
  putAttachment(
    id: string,
    name: string,
    data: Uint8Array | string | Readable | AsyncIterable<Uint8Array>,
    options?: { rev?: string; contentType?: string; signal?: AbortSignal },
  ): Promise<Written>;
  /** Removes an attachment. */
  deleteAttachment(id: string, name: string, rev: string): Promise<Written>;
}
