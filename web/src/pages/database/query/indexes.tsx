import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, path, useResource } from '../../../api';
import { print } from '../../../json';
import { link } from '../../../router';
import {
  say as announce,
  Badge,
  Button,
  Check,
  type Column,
  confirm,
  Dialog,
  Field,
  Form,
  Loading,
  Problem,
  Table,
  TextField,
  words,
} from '../../../ui';
import { OnlyAdmins, useMayManage } from '../manage';
import { wrongJson } from '../views/source';
import { createIndex, deleteIndex, fieldsOf, type Index, indexes } from './ask';
import { say } from './texts';

/** Mango's indexes of a database. */
export function Indexes({ db }: { db: string }): JSX.Element {
  const t = say();
  const may = useMayManage(db);
  const all = useResource(`indexes ${db}`, (signal) => indexes(db, signal));
  const info = useResource(`props ${db}`, (signal) =>
    ask<{ props?: { partitioned?: boolean } }>('GET', path(db), { signal }),
  );
  const [isNew, setNew] = useState(false);
  const [find, setFind] = useState('');
  const rows = (all.data ?? []).filter((index) =>
    `${index.name} ${index.ddoc} ${fieldsOf(index).join(' ')}`.includes(find),
  );
  const remove = (index: Index) =>
    confirm({
      title: t.deleteTitle,
      text: t.deleteText(index.name),
      action: words().delete,
      work: () => deleteIndex(db, index),
    }).then((done) => done && all.reload());
  const columns: Column<Index>[] = [
    {
      id: 'name',
      name: t.name,
      width: 'minmax(7rem, 1.2fr)',
      cell: (index) => <span title={index.name}>{index.name}</span>,
    },
    {
      id: 'fields',
      name: t.fields,
      width: 'minmax(0, 2fr)',
      cell: (index) => <Fields index={index} />,
    },
    {
      id: 'ddoc',
      name: t.ddoc,
      width: 'minmax(0, 1fr)',
      isExtra: true,
      cell: (index) =>
        index.ddoc === null ? (
          <span class="soft">{t.special}</span>
        ) : (
          <a href={link(['database', db, '_design', index.ddoc.replace(/^_design\//, '')])}>
            {index.ddoc.replace(/^_design\//, '')}
          </a>
        ),
    },
    {
      id: 'type',
      name: t.type,
      width: '9rem',
      isExtra: true,
      cell: (index) => (
        <Badge>{index.partitioned ? `${index.type}, ${t.isPartitioned}` : index.type}</Badge>
      ),
    },
    {
      id: 'remove',
      name: '',
      width: '48px',
      cell: (index) =>
        may &&
        index.ddoc !== null && (
          <Button
            kind="plain"
            icon="remove"
            label={`${words().delete}: ${index.name}`}
            onClick={() => remove(index)}
          />
        ),
    },
  ];
  return (
    <>
      <div class="bar">
        <input
          type="search"
          aria-label={t.search}
          placeholder={t.search}
          value={find}
          onInput={(event) => setFind(event.currentTarget.value)}
        />
        <span class="grow" />
        {may && (
          <Button kind="primary" icon="add" onClick={() => setNew(true)}>
            {t.newIndex}
          </Button>
        )}
      </div>
      <OnlyAdmins may={may} />
      {all.error !== undefined ? (
        <Problem error={all.error} retry={all.reload} />
      ) : all.data ? (
        <Table
          label={t.indexes}
          columns={columns}
          count={rows.length}
          row={(n) => rows[n]}
          rowHeight={40}
        />
      ) : (
        <Loading />
      )}
      {isNew && (
        <New
          db={db}
          isPartitioned={info.data?.props?.partitioned === true}
          onClose={() => setNew(false)}
          onDone={all.reload}
        />
      )}
    </>
  );
}

function Fields({ index }: { index: Index }): JSX.Element {
  const partial = index.def.get('partial_filter_selector');
  return (
    <>
      <code>
        {fieldsOf(index)
          .map(([name, to]) => (to === 'desc' ? `${name} desc` : name))
          .join(', ')}
      </code>{' '}
      {partial !== undefined && (
        <span title={print(partial)}>
          <Badge kind="info">{say().isPartial}</Badge>
        </span>
      )}
    </>
  );
}

function New({
  db,
  isPartitioned,
  onClose,
  onDone,
}: {
  db: string;
  isPartitioned: boolean;
  onClose: () => void;
  onDone: () => void;
}): JSX.Element {
  const t = say();
  const [name, setName] = useState('');
  const [ddoc, setDdoc] = useState('');
  const [fields, setFields] = useState('');
  const [partial, setPartial] = useState('');
  const [partitioned, setPartitioned] = useState(isPartitioned);
  const wrong = wrongJson(partial);
  const create = async () => {
    const list = fields
      .split(',')
      .map((field) => field.trim())
      .filter((field) => field !== '');
    const made = await createIndex(db, list, {
      name,
      ddoc,
      partial,
      ...(isPartitioned ? { partitioned } : {}),
    });
    announce((made.result === 'exists' ? t.existed : t.created)(made.name));
    onDone();
    onClose();
  };
  return (
    <Dialog title={t.newIndex} onClose={onClose}>
      <Form
        onSubmit={create}
        submit={words().create}
        onCancel={onClose}
        disabled={wrong !== undefined || fields.trim() === ''}
      >
        <TextField
          label={t.fields}
          value={fields}
          onInput={setFields}
          hint={t.fieldsHint}
          required
          focus
        />
        <TextField label={t.name} value={name} onInput={setName} hint={t.nameHint} />
        <TextField label={t.ddoc} value={ddoc} onInput={setDdoc} hint={t.ddocHint} />
        <Field label={t.partial} error={wrong}>
          {(id, described) => (
            <textarea
              id={id}
              rows={3}
              value={partial}
              aria-describedby={described}
              onInput={(event) => setPartial(event.currentTarget.value)}
            />
          )}
        </Field>
        {isPartitioned && (
          <Check label={t.isPartitioned} value={partitioned} onChange={setPartitioned} />
        )}
      </Form>
    </Dialog>
  );
}
