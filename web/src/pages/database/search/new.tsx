import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { go } from '../../../router';
import { Choice, Form, TextField, words } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { designs } from '../views/design';
import { say as ofViews } from '../views/texts';
import type { Kind } from './request';
import { say } from './texts';

/** Names a new index; it is written in its page and saved there. */
export function New({ db, design }: { db: string; design: string }): JSX.Element {
  const [t, v] = [say(), ofViews()];
  const may = useMayManage(db);
  const all = useResource(`designs ${db}`, (signal) => designs(db, signal));
  const [to, setTo] = useState(design);
  const [kind, setKind] = useState<Kind>('_nouveau');
  const [typed, setName] = useState('');
  const [ddoc, name] = [to.trim().replace(/^_design\//, ''), typed.trim()];
  const isTaken =
    all.data?.some(
      (each) =>
        each.name === ddoc && each.texts.some((one) => one.kind === kind && one.name === name),
    ) ?? false;
  if (!may) return <OnlyAdmins may={may} />;
  const create = async () => go(['database', db, '_design', ddoc, kind, name, 'edit']);
  return (
    <div class="card">
      <h2>{v.newText}</h2>
      <Form
        onSubmit={create}
        submit={words().create}
        onCancel={() => history.back()}
        disabled={ddoc === '' || name === '' || isTaken}
      >
        <div class="views-options">
          <TextField
            label={v.newDesign}
            value={to}
            onInput={setTo}
            list={(all.data ?? [])
              .filter((each) => each.language !== 'query')
              .map((each) => each.name)}
            focus={design === ''}
            required
          />
          <TextField
            label={v.name}
            value={typed}
            onInput={setName}
            focus={design !== ''}
            error={isTaken ? v.taken : undefined}
            required
          />
          <Choice
            label={t.kind}
            value={kind}
            of={[
              ['_nouveau', 'Nouveau'],
              ['_search', 'Clouseau'],
            ]}
            onChange={setKind}
          />
        </div>
      </Form>
    </div>
  );
}
