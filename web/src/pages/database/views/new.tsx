import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../../../api';
import { from } from '../../../json';
import { go } from '../../../router';
import { Form, TextField, words } from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { change, designs, put } from './design';
import { LANGUAGES } from './language';
import { say } from './texts';

/** Names a new view; it is written in its page and saved there. */
export function NewView({ db, design }: { db: string; design: string }): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const all = useResource(`designs ${db}`, (signal) => designs(db, signal));
  const [to, setTo] = useState(design);
  const [language, setLanguage] = useState('javascript');
  const [name, setName] = useState('');
  const ddoc = to.trim().replace(/^_design\//, '');
  const found = all.data?.find((each) => each.name === ddoc);
  const isTaken = found?.views.includes(name.trim());
  if (!may) return <OnlyAdmins may={may} />;
  const create = async () => {
    const view = name.trim();
    // A view that gives nothing is quick to build; its function is written next.
    if (!found) await change(db, ddoc, (doc) => put(doc, ['views'], from({})), undefined, language);
    go(['database', db, '_design', ddoc, '_view', view], { begin: found?.language ?? language });
  };
  return (
    <div class="card">
      <h2>{t.newTitle}</h2>
      <Form
        onSubmit={create}
        submit={words().create}
        onCancel={() => history.back()}
        disabled={ddoc === '' || name.trim() === '' || isTaken}
      >
        <div class="views-options">
          <TextField
            label={t.newDesign}
            value={to}
            onInput={setTo}
            list={(all.data ?? [])
              .filter((each) => each.language !== 'query')
              .map((each) => each.name)}
            focus={design === ''}
            required
          />
          <TextField
            label={t.viewName}
            value={name}
            onInput={setName}
            focus={design !== ''}
            error={isTaken ? t.taken : undefined}
            required
          />
          <TextField
            label={t.language}
            value={found?.language ?? language}
            onInput={setLanguage}
            list={LANGUAGES}
          />
        </div>
      </Form>
    </div>
  );
}
