import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { ask } from '../../../api';
import { bytes } from '../../../i18n';
import {
  Button,
  type Column,
  confirm,
  Empty,
  Icon,
  Problem,
  Progress,
  Table,
  say as tell,
  words,
} from '../../../ui';
import { type Attachment, attachmentHref, listed } from './attachment';
import type { Draft } from './draft';
import { Preview } from './preview';
import { say } from './texts';
import type { Upload, Uploads } from './upload';

export function Attachments({ draft, uploads }: { draft: Draft; uploads: Uploads }): JSX.Element {
  const t = say();
  const [isOver, setOver] = useState(false);
  const [seen, setSeen] = useState<Attachment | undefined>();
  const [error, setError] = useState<string | undefined>();
  const input = useRef<HTMLInputElement>(null);
  const replaced = useRef<string | undefined>(undefined);
  const all = listed(draft);
  if (draft.state.value !== 'there') return <Empty icon="attach" title={t.newFirst} />;
  /**
   * Whether attachments can be noted in the text, once more as it may be in the midst of typing.
   */
  const mayChange = () => {
    const may = !draft.isDirty.value || draft.parsed() !== undefined;
    setError(may ? undefined : t.mend);
    return may;
  };
  const add = async (files: File[]) => {
    if (files.length === 0 || !mayChange()) return;
    const as = replaced.current;
    replaced.current = undefined;
    const there = new Set(all.map(({ name }) => name));
    for (const file of files) {
      const name = as ?? file.name;
      const start = () => Promise.resolve(uploads.add([{ name, file }]));
      if (as === undefined && there.has(name))
        await confirm({
          title: t.replaceAsk(name),
          text: t.replaceText,
          action: t.replace,
          kind: 'primary',
          work: start,
        });
      else await start();
    }
  };
  const choose = (as?: string) => {
    replaced.current = as;
    input.current?.toggleAttribute('multiple', as === undefined);
    input.current?.click();
  };
  const remove = async ({ name }: Attachment) => {
    if (!mayChange()) return;
    const work = async () => {
      await draft.withRev(
        name,
        async (rev) =>
          (
            await ask<{ rev: string }>('DELETE', `${draft.path}/${encodeURIComponent(name)}`, {
              query: { rev },
            })
          ).rev,
      );
      tell(t.removedFile(name));
    };
    await confirm({ title: t.removeAsk(name), text: t.removeText, action: words().delete, work });
  };
  return (
    <div
      class={`attachments${isOver ? ' over' : ''}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) =>
        !event.currentTarget.contains(event.relatedTarget as globalThis.Node | null) &&
        setOver(false)
      }
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void add([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <div class="bar">
        <Button icon="upload" kind="primary" onClick={() => choose()}>
          {t.upload}
        </Button>
        <span class="soft">{isOver ? t.dropNow : t.drop}</span>
        <input
          ref={input}
          class="hidden"
          type="file"
          multiple
          tabIndex={-1}
          aria-label={t.chooseFiles}
          onChange={(event) => {
            const files = [...(event.currentTarget.files ?? [])];
            // The same file can be chosen again.
            event.currentTarget.value = '';
            void add(files);
          }}
        />
      </div>
      {error && (
        <p class="notice warn" role="alert">
          {error}
        </p>
      )}
      {uploads.all.value.map((upload) => (
        <Sending key={upload.id} upload={upload} uploads={uploads} />
      ))}
      {all.length > 0 ? (
        <Table
          label={t.attachments}
          columns={columnsOf(draft, { see: setSeen, replace: choose, remove })}
          count={all.length}
          row={(index) => all[index]}
          rowHeight={40}
        />
      ) : (
        uploads.all.value.length === 0 && <Empty icon="attach" title={t.noAttachments} />
      )}
      {seen && <Preview draft={draft} of={seen} onClose={() => setSeen(undefined)} />}
    </div>
  );
}

function Sending({ upload, uploads }: { upload: Upload; uploads: Uploads }): JSX.Element {
  const t = say();
  const { id, name, state, done, file, error } = upload;
  if (state === 'failed')
    return (
      <Problem
        error={error}
        retry={() => uploads.again(upload)}
        dismiss={() => uploads.forget(id)}
      />
    );
  const isOver = state === 'stopped';
  return (
    <div class="card sending">
      <span class="grow cut" title={name}>
        {name}
      </span>
      <span class="soft">
        {isOver
          ? t.stopped
          : state === 'waiting'
            ? t.waiting
            : `${bytes(done * file.size)} / ${bytes(file.size)}`}
      </span>
      {isOver && <Button onClick={() => uploads.again(upload)}>{words().retry}</Button>}
      <Button
        kind="plain"
        icon="close"
        label={`${isOver ? words().dismiss : words().cancel}: ${name}`}
        onClick={() => (isOver ? uploads.forget(id) : uploads.stop(id))}
      />
      {!isOver && <Progress value={done} label={t.uploading(name)} />}
    </div>
  );
}

interface Work {
  see: (row: Attachment) => void;
  replace: (name: string) => void;
  remove: (row: Attachment) => Promise<void>;
}

function columnsOf(draft: Draft, work: Work): Column<Attachment>[] {
  const t = say();
  return [
    {
      id: 'name',
      name: words().name,
      cell: (row) => (
        <button type="button" class="as-link cut" title={row.name} onClick={() => work.see(row)}>
          {row.name}
        </button>
      ),
    },
    {
      id: 'type',
      name: t.type,
      width: 'minmax(0, 12rem)',
      isExtra: true,
      cell: (row) => <span title={row.type}>{row.type}</span>,
    },
    { id: 'size', name: words().size, width: '6rem', align: 'end', cell: (row) => bytes(row.size) },
    {
      id: 'digest',
      name: t.digest,
      width: 'minmax(0, 14rem)',
      isExtra: true,
      cell: (row) => <code title={row.digest}>{row.digest}</code>,
    },
    {
      id: 'actions',
      name: t.actions,
      width: '7.75rem',
      cell: (row) => (
        <span class="act">
          <a
            class="button plain"
            href={attachmentHref(draft, row.name)}
            download={row.name}
            aria-label={`${t.download} ${row.name}`}
            title={t.download}
          >
            <Icon name="download" />
          </a>
          <Button
            kind="plain"
            icon="upload"
            label={`${t.replace} ${row.name}`}
            onClick={() => work.replace(row.name)}
          />
          <Button
            kind="plain"
            icon="remove"
            label={`${words().delete} ${row.name}`}
            onClick={() => void work.remove(row)}
          />
        </span>
      ),
    },
  ];
}
