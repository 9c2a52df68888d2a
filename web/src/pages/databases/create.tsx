import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, path } from '../../api';
import { go } from '../../router';
import { Check, confirm, Dialog, Form, say, TextField, words } from '../../ui';
import { t } from './texts';

const NAME = /^[a-z][a-z0-9_$()+/-]*$/;
const SYSTEM = ['_users', '_replicator', '_global_changes'];

/** Asks for a new database and opens it. */
export function Create({ onClose }: { onClose: () => void }): JSX.Element {
  const [name, setName] = useState('');
  const [isPartitioned, setPartitioned] = useState(false);
  const [hasAccess, setAccess] = useState(false);
  const [q, setQ] = useState('');
  const [n, setN] = useState('');
  const isGood = NAME.test(name) || SYSTEM.includes(name);
  const create = async () => {
    await ask('PUT', path(name), {
      query: {
        partitioned: isPartitioned || undefined,
        access: hasAccess || undefined,
        q: q || undefined,
        n: n || undefined,
      },
    });
    onClose();
    say(t().wasCreated(name));
    go(['database', name, '_all_docs']);
  };
  return (
    <Dialog title={t().create} onClose={onClose}>
      <Form onSubmit={create} submit={words().create} onCancel={onClose} disabled={!isGood}>
        <TextField
          label={words().name}
          value={name}
          onInput={setName}
          focus
          required
          autocomplete="off"
          hint={t().rule}
          error={name !== '' && !isGood ? t().rule : undefined}
        />
        <Check
          label={t().isPartitioned}
          hint={t().partitionedHint}
          value={isPartitioned}
          onChange={setPartitioned}
        />
        <Check label={t().hasAccess} hint={t().accessHint} value={hasAccess} onChange={setAccess} />
        <details>
          <summary>
            <small>{t().options}</small>
          </summary>
          <div class="card">
            <TextField
              label={t().shards}
              type="number"
              value={q}
              onInput={setQ}
              hint={t().shardsHint}
            />
            <TextField
              label={t().copies}
              type="number"
              value={n}
              onInput={setN}
              hint={t().copiesHint}
            />
          </div>
        </details>
      </Form>
    </Dialog>
  );
}

/** Deletes a database, if its name is typed; answers whether it was deleted. */
export function askToDelete(name: string): Promise<boolean> {
  return confirm({
    title: t().deleteTitle,
    text: (
      <>
        <p>{t().deleteText(name)}</p>
        {SYSTEM.includes(name) && <p class="notice warn">{t().system}</p>}
      </>
    ),
    action: words().delete,
    type: name,
    work: async () => {
      await ask('DELETE', path(name));
      say(t().wasDeleted(name));
    },
  });
}
