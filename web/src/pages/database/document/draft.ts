import { signal } from '@preact/signals';
import { ApiError, ask, docPath, LostError, path, type Query, read, send, url } from '../../../api';
import { type Json, JsonError, Obj, parse, print, text as textOf } from '../../../json';
import { mistakeWords } from '../../../ui';
import { isSame, lineOf, plain, put } from './source';
import { say } from './texts';

export interface Wrong {
  line: number;
  column?: number;
  text: string;
}

/**
 * What the server has now, where that is not what the draft began with; `undefined` when it was
 * deleted.
 */
export interface Clash {
  theirs: Obj | undefined;
}

export type State = 'loading' | 'there' | 'new' | 'deleted' | 'failed';

/** A text that somebody edits, and the document that it began with. */
export class Draft {
  readonly state = signal<State>('loading');
  /** As the server has it, as far as we know. */
  readonly doc = signal<Obj | undefined>(undefined);
  readonly conflicts = signal<string[]>([]);
  readonly isDirty = signal(false);
  readonly isSaving = signal(false);
  readonly error = signal<unknown>(undefined);
  readonly wrongs = signal<Wrong[]>([]);
  readonly clash = signal<Clash | undefined>(undefined);
  /** What the editor is given; it has what was typed since itself. */
  readonly shown = signal({ text: '', round: 0 });
  /** Counts what was changed on the server: pictures of it are asked for again. */
  readonly changes = signal(0);
  /** The text of a save that got no response. */
  waiting: string | undefined;

  private text = '';
  private base = '';

  constructor(
    readonly db: string,
    /** `undefined` for one that is not there yet. */
    readonly id: string | undefined,
    readonly clone: string | undefined,
  ) {}

  get now(): string {
    return this.text;
  }

  get rev(): string {
    return textOf(this.doc.value?.get('_rev'));
  }

  get path(): string {
    return docPath(this.db, this.id ?? '');
  }

  /** The address of a link; `undefined` where browsers have none. */
  href(query: Query, name?: string): string | undefined {
    const to = this.path + (name === undefined ? '' : path(name));
    try {
      return url(to, query).href;
    } catch {
      return undefined;
    }
  }

  async load(stop?: AbortSignal): Promise<void> {
    this.error.value = undefined;
    this.clash.value = undefined;
    this.wrongs.value = [];
    try {
      if (this.id === undefined) await this.begin(stop);
      else
        this.take(
          (await read('GET', this.path, { query: { conflicts: true }, signal: stop })) as Obj,
        );
    } catch (error) {
      if (stop?.aborted) return;
      if (error instanceof ApiError && error.status === 404 && error.reason === 'deleted')
        this.takeDeleted();
      else {
        this.error.value = error;
        if (this.state.value === 'loading') this.state.value = 'failed';
      }
    }
  }

  private async begin(stop?: AbortSignal): Promise<void> {
    const { uuids } = await ask<{ uuids: string[] }>('GET', '/_uuids', { signal: stop });
    const doc = new Obj([['_id', uuids[0] ?? '']]);
    if (this.clone !== undefined) {
      const from = (await read('GET', docPath(this.db, this.clone), { signal: stop })) as Obj;
      for (const [name, value] of plain(from))
        if (name !== '_id' && name !== '_rev') doc.set(name, value);
      if (this.clone.startsWith('_design/')) doc.set('_id', `${this.clone}-copy`);
    }
    this.base = '';
    this.state.value = 'new';
    this.write(print(doc, 2));
    // A proposal alone is nothing that could be lost.
    if (this.clone === undefined) this.base = this.text;
    this.change(this.text);
  }

  private take(doc: Obj): void {
    const conflicts = doc.get('_conflicts');
    this.conflicts.value = Array.isArray(conflicts) ? conflicts.map(textOf) : [];
    this.doc.value = plain(doc);
    this.base = print(this.doc.value, 2);
    this.state.value = 'there';
    this.changes.value++;
    this.write(this.base);
  }

  private takeDeleted(): void {
    this.conflicts.value = [];
    this.doc.value = undefined;
    this.base = print(new Obj([['_id', this.id ?? '']]), 2);
    this.state.value = 'deleted';
    this.changes.value++;
    this.write(this.base);
  }

  /** It was typed. */
  change(text: string): void {
    this.text = text;
    this.isDirty.value = text !== this.base;
    if (this.wrongs.value.length > 0) this.wrongs.value = [];
  }

  /** Puts a text into the editor. */
  write(text: string): void {
    const { text: given, round } = this.shown.value;
    // The editor takes another text only; typed over, the one given before is one again.
    if (given === text && this.text !== text) this.shown.value = { text, round: round + 1 };
    else if (given !== text) this.shown.value = { text, round };
    this.change(text);
  }

  undoAll(): void {
    this.error.value = undefined;
    this.write(this.base);
  }

  /** The text as a document; `undefined`, and what is wrong is told, where it is none. */
  parsed(): Obj | undefined {
    this.wrongs.value = [];
    try {
      const doc = parse(this.text);
      if (doc instanceof Obj) return doc;
      this.wrongs.value = [{ line: 1, text: say().noObject }];
    } catch (error) {
      if (!(error instanceof JsonError)) throw error;
      this.wrongs.value = [
        { line: error.line, column: error.column, text: mistakeWords()[error.problem] },
      ];
    }
    return undefined;
  }

  /** Sends the text as it was typed. Answers the id, or `undefined` where it was not saved. */
  async save(): Promise<string | undefined> {
    if (this.isSaving.value) return undefined;
    this.isSaving.value = true;
    try {
      return await this.saveText();
    } finally {
      this.isSaving.value = false;
    }
  }

  private async saveText(): Promise<string | undefined> {
    this.error.value = undefined;
    const doc = this.parsed();
    if (!doc) return undefined;
    const id = doc.get('_id');
    if (
      (id !== undefined && (typeof id !== 'string' || id === '')) ||
      (this.id !== undefined && id !== undefined && id !== this.id)
    ) {
      this.wrongs.value = [
        {
          line: lineOf(this.text, '_id'),
          text: this.id === undefined ? say().idText : say().idOther(this.id),
        },
      ];
      return undefined;
    }
    const sent = this.text;
    // Perhaps it was stored, and only the response did not come.
    const isAgain = this.waiting === sent;
    this.waiting = undefined;
    try {
      const told = await this.send(doc, sent, this.id ?? (typeof id === 'string' ? id : undefined));
      await this.saved(doc, sent, told.rev);
      return told.id;
    } catch (error) {
      // The server gives a document without an id another one each time.
      if (error instanceof LostError && (this.id ?? id) !== undefined) this.waiting = sent;
      await this.refused(error, doc);
      return isAgain ? await this.settle(doc) : undefined;
    }
  }

  /** Of a clash with what an earlier try has stored: it was saved. */
  private async settle(mine: Obj): Promise<string | undefined> {
    const theirs = this.clash.value?.theirs;
    if (!theirs || !isSame(theirs, mine)) return undefined;
    this.clash.value = undefined;
    if (this.id === undefined) {
      this.base = this.text;
      this.isDirty.value = false;
    } else await this.load();
    return textOf(theirs.get('_id'));
  }

  private async send(
    doc: Obj,
    sent: string,
    id: string | undefined,
  ): Promise<{ id: string; rev: string }> {
    if (id === undefined) return ask('POST', path(this.db), { body: sent });
    const to = docPath(this.db, id);
    if (
      this.clone === undefined ||
      this.id !== undefined ||
      doc.has('_rev') ||
      !doc.has('_attachments')
    )
      return ask('PUT', to, { body: sent });
    // The server copies the attachments with the document; the text goes upon the copy.
    const copy = await ask<{ rev: string }>('COPY', docPath(this.db, this.clone), {
      headers: { destination: encodeURIComponent(id) },
    });
    try {
      return await ask('PUT', to, { body: put(sent, '_rev', copy.rev) });
    } catch (error) {
      await send('DELETE', to, { query: { rev: copy.rev } });
      throw error;
    }
  }

  private async saved(doc: Obj, sent: string, rev: string): Promise<void> {
    if (this.id === undefined) {
      this.base = this.text;
      this.isDirty.value = false;
      return;
    }
    const attachments = doc.get('_attachments');
    const isAsStored =
      !(attachments instanceof Obj) ||
      [...attachments.values()].every((each) => each instanceof Obj && each.has('stub'));
    const isSame = this.text === sent;
    if (doc.get('_deleted') === true || (isSame && (!isAsStored || this.state.value === 'deleted')))
      return this.load();
    doc.set('_rev', rev);
    this.doc.value = doc;
    this.state.value = 'there';
    this.changes.value++;
    this.base = put(sent, '_rev', rev);
    this.follow(rev);
  }

  private async refused(error: unknown, doc: Obj): Promise<void> {
    if (error instanceof ApiError && error.status === 409) return this.collide(doc.get('_id'));
    const member =
      error instanceof ApiError
        ? /special document member: (\S+)/.exec(error.reason)?.[1]
        : undefined;
    if (member)
      this.wrongs.value = [{ line: lineOf(this.text, member), text: say().special(member) }];
    else this.error.value = error;
  }

  /** Somebody else was faster: what is there now is shown beside the own text. */
  async collide(id: Json | undefined = this.id): Promise<void> {
    try {
      this.clash.value = {
        theirs: plain((await read('GET', docPath(this.db, textOf(id)))) as Obj),
      };
    } catch (error) {
      if (error instanceof ApiError && error.status === 404)
        this.clash.value = { theirs: undefined };
      else this.error.value = error;
    }
  }

  /** Of a clash: what is there now takes the place of the text. */
  async takeTheirs(): Promise<void> {
    const theirs = this.clash.value?.theirs;
    if (this.id !== undefined) return this.load();
    this.clash.value = undefined;
    if (theirs) this.write(print(theirs, 2));
  }

  /** Of a clash: the own text becomes the next revision of what is there now. */
  async saveUpon(): Promise<string | undefined> {
    const clash = this.clash.value;
    const mine = this.parsed();
    if (!clash || !mine) return undefined;
    this.clash.value = undefined;
    let text = put(this.text, '_rev', clash.theirs?.get('_rev'));
    // Attachments that nobody touched here are those that are there now.
    const before = this.doc.value?.get('_attachments');
    if (print(before ?? null) === print(mine.get('_attachments') ?? null))
      text = put(text, '_attachments', clash.theirs?.get('_attachments'));
    this.write(text);
    return this.save();
  }

  /** The text goes on from another revision. */
  private follow(rev: string | undefined): void {
    try {
      parse(this.text);
      this.write(put(this.text, '_rev', rev));
    } catch {
      // In the midst of typing: the first `_rev` is the document's, as the server puts it there.
      this.write(this.text.replace(/"_rev"\s*:\s*"[^"]*"/, `"_rev": ${JSON.stringify(rev)}`));
    }
  }

  /**
   * Puts or removes an attachment upon the present revision: upon a later one too, unless there is
   * unsaved text of an earlier one.
   */
  async withRev(name: string, work: (rev: string) => Promise<string>): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return await this.attached(name, await work(this.rev));
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 409)) throw error;
        if (this.isDirty.value || tries > 1) {
          await this.collide();
          throw error;
        }
        await this.load();
      }
    }
  }

  /** The text follows, with what was typed. */
  private async attached(name: string, rev: string): Promise<void> {
    const doc = plain((await read('GET', this.path, { query: { rev } })) as Obj);
    const wasDirty = this.isDirty.value;
    this.doc.value = doc;
    this.base = print(doc, 2);
    this.changes.value++;
    if (!wasDirty) return this.write(this.base);
    const all = doc.get('_attachments');
    const stub = all instanceof Obj ? all.get(name) : undefined;
    let mine = new Obj();
    try {
      const typed = parse(this.text);
      const own = typed instanceof Obj ? typed.get('_attachments') : undefined;
      if (own instanceof Obj) mine = own;
    } catch {
      return this.follow(rev);
    }
    if (stub === undefined) mine.delete(name);
    else mine.set(name, stub);
    this.write(put(put(this.text, '_rev', rev), '_attachments', mine.size > 0 ? mine : undefined));
  }

  /** Takes the content of another revision as the text; what it goes on from stays. */
  takeContent(of: Obj): void {
    const content = plain(of);
    content.delete('_deleted');
    const attachments = this.doc.value?.get('_attachments');
    if (attachments) content.set('_attachments', attachments);
    else content.delete('_attachments');
    const text = put(print(content, 2), '_rev', this.doc.value ? this.rev : undefined);
    this.write(text);
  }

  /**
   * Deletes it; answers how to take that back. Where it had conflicts, one of them takes its place.
   */
  async remove(): Promise<() => Promise<unknown>> {
    const rev = this.rev;
    const before = this.doc.value;
    await ask('DELETE', this.path, { query: { rev } });
    if (this.conflicts.value.length > 0) await this.load();
    else {
      this.base = this.text;
      this.isDirty.value = false;
    }
    return async () => {
      // What was deleted has no attachments: they are sent again with the revision before it.
      const whole = before?.has('_attachments')
        ? await (await send('GET', this.path, { query: { rev, attachments: true } })).text()
        : print(before ?? null);
      await send('PUT', this.path, { body: put(whole, '_rev', undefined) });
    };
  }
}
