// Random edits of a PouchDB: what an app does, with attachments and conflicts.
const { createHash } = require('node:crypto');

const IDS = 40;
const TYPES = ['text/plain', 'application/octet-stream', 'application/json', 'image/png'];
const NAMES = ['note.txt', 'deep/er/path.bin', 'naïve 🙂.json', 'a+b c'];

class Edits {
  constructor(db, name, seed) {
    Object.assign(this, { db, name, state: seed >>> 0, made: 0 });
  }

  /** A uniform number in [0, 1), the same ones for the same seed. */
  random() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  below(limit) {
    return Math.floor(this.random() * limit);
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  async make(count) {
    const acknowledged = [];
    while (acknowledged.length < count) {
      const kind = this.pick(['put', 'put', 'put', 'remove', 'attach', 'attach', 'inline', 'detach', 'graft', 'resolve', 'bulk']);
      try {
        acknowledged.push(...await this[kind](this.anId()));
      } catch (error) {
        if (error.status !== 404 && error.status !== 409) throw error; // gone, or changed by the sync in between
      }
    }
    return acknowledged;
  }

  /** Most ids are everybody's, so that there are conflicts. */
  anId() {
    const at = this.below(IDS);
    return this.pick([`shared-${at}`, `shared-${at}`, `${this.name}-${at}`, `shared/ü ${at}+`]);
  }

  body() {
    this.made += 1;
    return { by: this.name, made: this.made, half: this.made + 0.5, text: 'x'.repeat(this.below(300)), nested: { list: [this.made, null, true, 'ß'] } };
  }

  content() {
    const data = Buffer.alloc(this.below(4) ? this.below(3000) : this.below(150_000));
    const mixed = this.below(2);
    for (let at = 0; at < data.length; at += 1) data[at] = mixed ? this.below(256) : 97 + (at % 26);
    return data;
  }

  /**
   * Never the same name twice: PouchDB's replicator may fetch the winner's attachment of a name for a revision that lost
   * (it leaves out the revision), and what it fetched then must not differ.
   */
  attachmentName() {
    this.made += 1;
    return `${this.pick(NAMES)}.${this.name}.${this.made}`;
  }

  async current(id) {
    return this.db.get(id).catch((error) => {
      if (error.status === 404) return { _id: id };
      throw error;
    });
  }

  async put(id) {
    const { _id, _rev, _attachments } = await this.current(id);
    const kept = _attachments && this.below(4) ? { _attachments } : {}; // stubs
    return [await this.acknowledged(this.db.put({ _id, ...(_rev && { _rev }), ...this.body(), ...kept }))];
  }

  async remove(id) {
    const { _rev } = await this.db.get(id);
    if (this.below(2)) return [await this.acknowledged(this.db.remove(id, _rev))];
    return [await this.acknowledged(this.db.put({ _id: id, _rev, _deleted: true, why: 'a tombstone with a body' }))];
  }

  async attach(id) {
    const { _rev } = await this.current(id);
    return [await this.acknowledged(this.db.putAttachment(id, this.attachmentName(), _rev, this.content(), this.pick(TYPES)))];
  }

  async inline(id) {
    const { _id, _rev, _attachments } = await this.current(id);
    const added = { [this.attachmentName()]: { content_type: this.pick(TYPES), data: this.content().toString('base64') }, empty: { content_type: 'text/plain', data: '' } };
    return [await this.acknowledged(this.db.put({ _id, ...(_rev && { _rev }), ...this.body(), _attachments: { ..._attachments, ...added } }))];
  }

  async detach(id) {
    const { _rev, _attachments } = await this.db.get(id);
    const names = Object.keys(_attachments ?? {});
    return names.length ? [await this.acknowledged(this.db.removeAttachment(id, this.pick(names), _rev))] : [];
  }

  /** A conflict made here: a sibling of the winner, as if another device had written it. */
  async graft(id) {
    const { _rev, _revisions } = await this.db.get(id, { revs: true });
    const hash = createHash('md5').update(`${this.name} ${this.made}`).digest('hex');
    const revisions = { start: _revisions.start, ids: [hash, ..._revisions.ids.slice(1)] };
    if (_rev.endsWith(hash)) return [];
    const data = this.content().toString('base64');
    const doc = { _id: id, _rev: `${_revisions.start}-${hash}`, _revisions: revisions, ...this.body(), _attachments: { [this.attachmentName()]: { content_type: 'text/plain', data } } };
    const failed = await this.db.bulkDocs([doc], { new_edits: false });
    if (failed.length) throw Object.assign(new Error('the graft was refused'), failed[0]);
    return [[id, doc._rev]];
  }

  async resolve(id) {
    const { _conflicts } = await this.db.get(id, { conflicts: true });
    return _conflicts ? [await this.acknowledged(this.db.remove(id, this.pick(_conflicts)))] : [];
  }

  async bulk() {
    const docs = Array.from({ length: 5 }, () => ({ _id: `${this.name}-bulk-${this.made += 1}`, ...this.body() }));
    return (await this.db.bulkDocs(docs)).filter((row) => row.ok).map((row) => [row.id, row.rev]);
  }

  async acknowledged(promise) {
    const { id, rev } = await promise;
    return [id, rev];
  }
}

module.exports = { Edits };
