import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { from, type Obj, print } from '../src/json';
import { accessOf, changed, having, written } from '../src/pages/database/document/access';

const of = (access: unknown) => accessOf(from({ _access: access }) as Obj);
const text = (access: ReturnType<typeof accessOf>) => print(written(access));

describe('sharing', () => {
  it('tells readers from writers, and users from roles', () => {
    const access = of({ read: ['bob', 'role:nurse', 'al'], write: ['al', 'role:doctor'] });
    assert.deepEqual(access, { write: ['al', 'role:doctor'], read: ['bob', 'role:nurse'] });
    assert.deepEqual(having(access, 'write', 'roles'), ['doctor']);
    assert.deepEqual(having(access, 'read', 'names'), ['bob']);
    assert.deepEqual(of(['al']), { write: ['al'], read: [] });
    assert.deepEqual(accessOf(undefined), { write: [], read: [] });
    assert.deepEqual(of(5), { write: [], read: [] });
  });

  it('writes the short form where it can', () => {
    assert.strictEqual(text(of(['al', 'role:a'])), '["al","role:a"]');
    assert.strictEqual(text(of({ write: ['al'] })), '["al"]');
    assert.strictEqual(
      text(of({ read: ['bob'], write: ['al'] })),
      '{"read":["bob"],"write":["al"]}',
    );
  });

  it('gives each user and role one right', () => {
    const access = of({ read: ['bob'], write: ['al', 'role:doctor'] });
    const more = changed(access, 'write', 'names', ['al', 'bob']);
    assert.deepEqual(more, { write: ['role:doctor', 'al', 'bob'], read: [] });
    const less = changed(more, 'read', 'names', ['bob']);
    assert.deepEqual(less, { write: ['role:doctor', 'al'], read: ['bob'] });
    assert.deepEqual(changed(less, 'write', 'roles', []).write, ['al']);
  });
});
