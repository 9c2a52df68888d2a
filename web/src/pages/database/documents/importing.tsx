import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { lazy } from '../../../lazy';
import { Button } from '../../../ui';
import type { ImportProps } from '../import';
import { useDrop } from '../import/drop';
import { t } from './texts';

const Import = lazy<ImportProps>(() => import('../import'));

/** Imports a file that is chosen, or dropped on the page. */
export function Importing({ db, changed }: { db: string; changed: () => void }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const [file, setFile] = useState<File>();
  const isOver = useDrop((dropped) => setFile((old) => old ?? dropped));
  return (
    <>
      <Button icon="upload" aria-pressed={isOver} onClick={() => input.current?.click()}>
        {isOver ? t().dropNow : t().import}
      </Button>
      <input
        ref={input}
        class="hidden"
        type="file"
        accept=".json,.jsonl,.ndjson,.csv,.tsv,.txt"
        tabIndex={-1}
        aria-label={t().chooseFile}
        onChange={(event) => {
          setFile(event.currentTarget.files?.[0]);
          // The same file can be chosen again.
          event.currentTarget.value = '';
        }}
      />
      {file && <Import db={db} file={file} onClose={() => setFile(undefined)} onDone={changed} />}
    </>
  );
}
