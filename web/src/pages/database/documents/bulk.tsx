import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { path, read } from '../../../api';
import { count } from '../../../i18n';
import { print } from '../../../json';
import { Button, complain, confirm, say, words } from '../../../ui';
import type { Info } from '../../databases/infos';
import { type Chosen, type Removal, remove, UNDO_BYTES_MAX, UNDO_MAX } from './remove';
import { rowsOf } from './rows';
import { t } from './texts';

const CHUNK = 200;
/** As many are deleted without a question. */
const HANDFUL = 5;

/** What can be done with the selected documents. */
export function Bulk({
  db,
  info,
  chosen,
  clear,
  changed,
}: {
  db: string;
  info: Info;
  chosen: Map<string, string>;
  clear: () => void;
  changed: () => void;
}): JSX.Element {
  const [done, setDone] = useState(0);
  const all = [...chosen].map(([id, rev]): Chosen => ({ id, rev }));
  const run = async (isKept: boolean) => {
    try {
      tell(await remove(db, all, isKept, setDone), changed);
      clear();
    } finally {
      setDone(0);
      changed();
    }
  };
  const ask = () => {
    const bytes = (info.sizes.external / Math.max(1, info.doc_count)) * all.length;
    const canUndo = all.length <= UNDO_MAX && bytes <= UNDO_BYTES_MAX;
    if (canUndo && all.length <= HANDFUL) return run(true).catch(complain);
    return confirm({
      title: t().deleteTitle,
      text: t().deleteText(count(all.length)) + (canUndo ? t().canUndo : t().cannotUndo),
      action: words().delete,
      work: () => run(canUndo),
    });
  };
  return (
    <>
      <strong role="status">
        {done > 0 ? t().deleting(count(done), count(all.length)) : t().selected(count(all.length))}
      </strong>
      <Button icon="remove" onClick={ask}>
        {words().delete}
      </Button>
      <Button icon="download" onClick={() => download(db, all).catch(complain)}>
        {t().download}
      </Button>
      <Button kind="plain" onClick={clear}>
        {t().clear}
      </Button>
    </>
  );
}

function tell({ removed, failed, conflicts, undo }: Removal, changed: () => void): void {
  const back = undo && (() => undo().finally(changed));
  if (removed > 0)
    say(
      [t().wasDeleted(count(removed)), conflicts > 0 && t().left(count(conflicts))]
        .filter(Boolean)
        .join(' '),
      back,
    );
  const [first] = failed;
  if (first) complain(new Error(t().failed(count(failed.length), ...first)));
}

/** Saves them as a file: an array of documents, numbers as they are. */
async function download(db: string, all: Chosen[]): Promise<void> {
  const docs: string[] = [];
  for (let n = 0; n < all.length; n += CHUNK) {
    const told = await read('POST', `${path(db)}/_all_docs`, {
      query: { include_docs: true },
      body: { keys: all.slice(n, n + CHUNK).map(({ id }) => id) },
    });
    for (const { doc } of rowsOf(told)) if (doc) docs.push(print(doc));
  }
  const anchor = document.createElement('a');
  anchor.href = URL.createObjectURL(
    new Blob(['[\n', docs.join(',\n'), '\n]\n'], { type: 'application/json' }),
  );
  anchor.download = `${db.replaceAll('/', '-')}.json`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60_000);
}
