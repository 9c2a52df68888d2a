// Settee's databases in this process: documents, views, queries and changes, without a server.

/// <reference types="node" />

import type { Readable, Writable } from "node:stream";

/** The version of the package. */
export const version: string;

/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Members that the database adds to a document. */
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

/** A document's description of an attachment. */
export interface AttachmentStub {
  content_type: string;
  revpos: number;
  digest: string;
  length?: number;
  stub?: true;
  data?: string;
}

/**
 * A document to write: an object, or its JSON text, which is stored unchanged. NaN, infinities, BigInts and functions in an object are
 * refused with a TypeError. JavaScript writes `1.0` as `1`, and rounds integers beyond 2^53 when it reads them: text keeps both.
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

/** The outcome of one document of a bulk. */
export interface Outcome {
  id: string;
  ok?: true;
  rev?: string;
  error?: string;
  reason?: string;
}

/** A refusal or a failure, with CouchDB's error names. */
export class SetteeError extends Error {
  /** The HTTP status that a server would return: 404, 409, 412, … */
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
  /** Create the directory if it does not exist; true by default. */
  create?: boolean;
  /** Shards of a new database; 2 by default. */
  q?: number;
  /** Memory for recently read blocks of files, in bytes (256 MiB). */
  cacheBytes?: number;
  /** Memory for recently read documents, in bytes (128 MiB). */
  documentsBytes?: number;
  /** Memory for writes that are not in files yet, in bytes (96 MiB). */
  writeBuffersBytes?: number;
  /** Memory for the rows of index builds, in bytes (256 MiB). */
  indexBuildsBytes?: number;
  /** Memory for frequently read rows of indexes, in bytes (64 MiB). */
  indexRowsBytes?: number;
  /** Update indexes in the background, before queries need them; true by default. */
  backgroundIndexing?: boolean;
  /** Compact automatically; true by default. */
  autoCompact?: boolean;
  /** Open a store with a damaged log: keep the writes before the damage, and lose later ones. */
  acceptDamagedLog?: boolean;
  /** How the JavaScript of design documents runs. */
  functions?: {
    /** The program `settee`: JavaScript then runs in separate processes. */
    program?: string;
    /** Time for one document, in milliseconds (5000). */
    timeLimitMs?: number;
    /** Memory of one heap, in bytes (64 MiB). */
    memoryLimitBytes?: number;
  };
}

/**
 * Opens a directory of databases. Fails with 423 `in_use` when it is open already, in this process or another. The data directory of a server may
 * be opened while the server does not run.
 */
export function open(path: string, options?: OpenOptions): Promise<Directory>;

/** An open directory. */
export class Directory {
  private constructor();
  /** Path of the directory. */
  readonly path: string;
  /** Whether it was closed. */
  readonly closed: boolean;
  /** Names of databases, in their order. */
  names(): Promise<string[]>;
  /** Whether a database of this name exists. */
  has(name: string): Promise<boolean>;
  /** Returns the database of this name; 404 if it does not exist. */
  database(name: string): Promise<Database>;
  /** Creates a database; 412 `file_exists` if it exists already, unless `existOk`. */
  create(name: string, options?: { q?: number; partitioned?: boolean; existOk?: boolean }): Promise<Database>;
  /** Deletes a database. */
  delete(name: string): Promise<void>;
  /** Running compactions and index builds, as in `/_active_tasks`. */
  tasks(): Promise<Record<string, Json>[]>;
  /** Stops background work, writes queued changes, and closes the directory. A second call does nothing. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface GetOptions {
  /** This revision instead of the winning one. */
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
  /** False stores revisions with their own ids, as a replicator does. */
  newEdits?: boolean;
  /** Acknowledge immediately; the write is on disk within a second. */
  delayed?: boolean;
}

/** Progress of a long job. */
export interface Progress {
  done: number;
  total: number;
}

export interface LoadOptions extends WriteOptions {
  /** Documents per commit; 1000 by default. */
  batch?: number;
  /** Ends the load between two commits: earlier commits remain. */
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

/** Waiting for an index. If the wait ends early, the build continues until the directory is closed. */
export interface Waiting {
  signal?: AbortSignal;
  /** Called periodically during the build with the number of processed changes and their total. */
  onProgress?: (progress: Progress) => void;
}

export interface ViewOptions extends RangeOptions<unknown>, Waiting {
  startkey_docid?: string;
  endkey_docid?: string;
  reduce?: boolean;
  group?: boolean;
  group_level?: number;
  /** False reads the index without updating it, "lazy" updates it afterwards. */
  update?: boolean | "lazy";
}

export interface FindOptions {
  fields?: string[];
  sort?: (string | Record<string, "asc" | "desc">)[];
  /** Unlimited by default. */
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
  /** A `seq` to resume after, or "now". */
  since?: string;
  /** Wait for new changes. */
  live?: boolean;
  /** Longest wait for the next change, in milliseconds. Iterate again to continue. */
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
  /** Ends the wait. */
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
  /** The remaining items. */
  toArray(): Promise<T[]>;
  /** Releases its snapshot; not needed after iterating to the end, or after leaving a `for await`. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Rows from one snapshot, read on demand: each is returned once. */
export interface Rows<T = Row> extends Cursor<T> {
  /** Number of all rows of the view or database; undefined for reductions and queries. */
  readonly totalRows: number | undefined;
  /** Number of rows before the first one. */
  readonly offset: number | undefined;
  /** The update seq of the rows, if it was requested. */
  readonly updateSeq: string | undefined;
  /** Members that are known after the last row: for a query `bookmark`, `warning`, `execution_stats`. */
  tail(): Promise<Record<string, Json>>;
}
export const Rows: { readonly prototype: Rows };

/** Changes; a `live` feed waits for new ones. */
export interface Changes<T = Change> extends Cursor<T> {
  /** In milliseconds; may be changed at any time. */
  timeout: number | undefined;
  /** The seq to resume from later: after the rows that were read from the database. Each row has its own, `seq`. */
  lastSeq(): Promise<string>;
}
export const Changes: { readonly prototype: Changes };

/** An attachment as a stream. */
export interface AttachmentReader extends Readable {
  readonly contentType: string;
  /** Bytes of the whole attachment. */
  readonly length: number;
  readonly digest: string;
}

/** A stream that becomes an attachment when it is ended; if it is destroyed before, nothing is written. */
export interface AttachmentWriter extends Writable {
  /** The written document, once the stream has finished. */
  readonly written: Written | undefined;
}

type Raw = { raw: true };
type Parsed = { raw?: false };

/** A database. With `raw: true` documents and rows are JSON text instead of values. */
export class Database {
  private constructor();
  readonly name: string;
  /** Counts and sizes, as in `GET /{db}`. */
  info(): Promise<Record<string, Json> & { doc_count: number; doc_del_count: number; update_seq: string }>;
  /** Starts a compaction in the background. */
  compact(): Promise<void>;

  /** Reads a document; 404 `not_found` if it does not exist. */
  get<T = Record<string, any>>(id: string, options?: GetOptions & Parsed): Promise<T & Meta>;
  get(id: string, options: GetOptions & Raw): Promise<string>;
  /** Writes a document. Without `_id` it gets a new id; an existing document needs its `_rev`, or the write fails with 409 `conflict`. */
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
  /** Rows of a view. Updates its index first. */
  view<Value = any, Doc = any>(design: string, view: string, options?: ViewOptions & Parsed): Promise<Rows<Row<Value, Doc>>>;
  view(design: string, view: string, options: ViewOptions & Raw): Promise<Rows<string>>;
  /** Updates the index of a design document. */
  buildIndex(design: string, options?: Waiting): Promise<void>;

  /** Matching documents, as in `_find`, read on demand. With `aggregate` the rows are groups. */
  find<T = Record<string, any>>(
    selector: object,
    options?: FindOptions & Parsed & { signal?: AbortSignal },
  ): Promise<Rows<T>>;
  find(selector: object, options: FindOptions & Raw & { signal?: AbortSignal }): Promise<Rows<string>>;
  /** The index that a query would use, as in `_explain`. */
  explain(selector: object, options?: FindOptions): Promise<Record<string, Json>>;
  /** The indexes for queries; the index of all documents comes first. */
  indexes(): Promise<Record<string, Json>[]>;
  /** Creates an index for queries, unless it exists. */
  createIndex(
    fields: (string | Record<string, "asc" | "desc">)[],
    options?: { name?: string; ddoc?: string; partitioned?: boolean; partial_filter_selector?: object },
  ): Promise<{ result: "created" | "exists"; id: string; name: string }>;
  /** Deletes an index for queries. */
  deleteIndex(ddoc: string, name: string): Promise<void>;

  /** Changes: each document once, at its newest change. */
  changes<Doc = any>(options?: ChangesOptions & Parsed): Promise<Changes<Change<Doc>>>;
  changes(options: ChangesOptions & Raw): Promise<Changes<string>>;

  /** An attachment as a stream; `start` and `end` select a range of its bytes. */
  openAttachment(
    id: string,
    name: string,
    options?: { rev?: string; start?: number; end?: number },
  ): Promise<AttachmentReader>;
  /** A stream that becomes an attachment of the revision `rev` of a document, or of a new document. */
  createAttachment(id: string, name: string, options?: { rev?: string; contentType?: string }): Promise<AttachmentWriter>;
  /** Writes an attachment: bytes, text, or the contents of a stream. */
  putAttachment(
    id: string,
    name: string,
    data: Uint8Array | string | Readable | AsyncIterable<Uint8Array>,
    options?: { rev?: string; contentType?: string; signal?: AbortSignal },
  ): Promise<Written>;
  /** Removes an attachment. */
  deleteAttachment(id: string, name: string, rev: string): Promise<Written>;
}
