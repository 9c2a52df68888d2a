import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { docPath, path, read, session } from '../../../api';
import { from, type Json, member, parse, print, text } from '../../../json';
import { Button, Problem, TextField } from '../../../ui';
import { NoPreview, preview } from './design';
import { Code } from './shared';
import { wrongJson } from './source';
import { say } from './texts';

/** What a validation would say of a write by somebody. */
export function DryRun({
  db,
  language,
  source,
}: {
  db: string;
  language: string;
  source: string;
}): JSX.Element {
  const t = say();
  const [id, setId] = useState('');
  const [begin, setBegin] = useState({ next: '{\n  "_id": "example"\n}', last: 'null' });
  const [next, setNext] = useState(begin.next);
  const [last, setLast] = useState(begin.last);
  const [user, setUser] = useState(session.value?.name ?? '');
  const [roles, setRoles] = useState(
    session.value?.roles.filter((role) => role !== '_admin').join(', ') ?? '',
  );
  const [verdict, setVerdict] = useState<Json>();
  const [error, setError] = useState<unknown>();
  const wrong = wrongJson(next) ?? wrongJson(last);
  const take = async () => {
    setError(undefined);
    try {
      const doc = print(await read('GET', docPath(db, id)), 2);
      setBegin({ next: doc, last: doc });
      setNext(doc);
      setLast(doc);
    } catch (thrown) {
      setError(thrown);
    }
  };
  const check = async () => {
    setError(undefined);
    setVerdict(undefined);
    try {
      const security = await read('GET', `${path(db)}/_security`);
      const userCtx = from({
        db,
        name: user.trim() || null,
        roles: roles
          .split(',')
          .map((role) => role.trim())
          .filter((role) => role !== ''),
      });
      const told = await preview(db, {
        language,
        validate: from({
          function: source,
          newDoc: parse(next),
          oldDoc: last.trim() === '' ? null : parse(last),
          userCtx,
          secObj: security,
        }),
      });
      setVerdict(told.validate);
    } catch (thrown) {
      setError(thrown);
    }
  };
  return (
    <>
      <div class="bar">
        <h2>{t.dryRun}</h2>
        <span class="soft">{t.dryRunText}</span>
      </div>
      <form
        class="row-of"
        onSubmit={(event) => {
          event.preventDefault();
          void take();
        }}
      >
        <input
          class="grow"
          aria-label={t.docId}
          placeholder={t.docId}
          value={id}
          onInput={(event) => setId(event.currentTarget.value)}
        />
        <Button type="submit" disabled={id === ''}>
          {t.load}
        </Button>
      </form>
      <Code label={t.newDoc} mode="json" value={begin.next} onChange={setNext} />
      <Code label={t.oldDoc} isSmall mode="json" value={begin.last} onChange={setLast} />
      <div class="views-options">
        <TextField label={t.user} value={user} onInput={setUser} />
        <TextField label={t.roles} value={roles} onInput={setRoles} hint={t.rolesHint} />
      </div>
      <div class="row-of">
        <Button kind="primary" onClick={check} disabled={wrong !== undefined}>
          {t.check}
        </Button>
        {wrong && <span class="soft">{wrong}</span>}
      </div>
      {error instanceof NoPreview ? (
        <p class="notice warn" role="alert">
          {t.noPreview}
        </p>
      ) : (
        <Problem error={error} dismiss={() => setError(undefined)} />
      )}
      {verdict !== undefined && <Verdict of={verdict} />}
    </>
  );
}

function Verdict({ of }: { of: Json }): JSX.Element {
  const t = say();
  if (member(of, 'ok') === true)
    return (
      <p class="notice good" role="status">
        {t.accepted}
      </p>
    );
  const error = text(member(of, 'error'));
  const line = member(of, 'line');
  return (
    <p class="notice warn" role="status">
      <strong>
        {error === 'forbidden' ? t.forbidden : error === 'unauthorized' ? t.unauthorized : t.failed}
      </strong>
      {': '}
      {text(member(of, 'reason'))} {line ? `(${t.inLine(Number(print(line)))})` : ''}
    </p>
  );
}
