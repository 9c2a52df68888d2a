import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button, Check, Dialog, words } from '../../../ui';
import type { DocRow } from './rows';
import { t } from './texts';

const USUAL = 5;
const MOST = 12;
const SHOWN_MAX = 200;

/** The fields that occur, most frequent first. */
export function fieldsOf(rows: Iterable<DocRow>): string[] {
  const counts = new Map<string, number>();
  for (const { id, doc } of rows) {
    if (!doc || id.startsWith('_design/')) continue;
    for (const name of doc.keys())
      if (!name.startsWith('_')) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts]
    .sort((a, b) => b[1] - a[1])
    .slice(0, SHOWN_MAX)
    .map(([name]) => name);
}

export function usual(fields: string[]): string[] {
  return fields.slice(0, USUAL);
}

const kept = (db: string) => `settee-columns:${db}`;

/** Those that were chosen for the database. */
export function chosenFields(db: string): string[] | undefined {
  try {
    const read: unknown = JSON.parse(localStorage.getItem(kept(db)) ?? 'null');
    return Array.isArray(read) ? read.map(String) : undefined;
  } catch {
    return undefined;
  }
}

/** Lets choose the columns. */
export function Fields({
  db,
  fields,
  shown,
  onClose,
  onChange,
}: {
  db: string;
  fields: string[];
  shown: string[];
  onClose: () => void;
  onChange: () => void;
}): JSX.Element {
  const [chosen, setChosen] = useState(shown);
  const choose = (to: string[] | undefined) => {
    if (to) localStorage.setItem(kept(db), JSON.stringify(to));
    else localStorage.removeItem(kept(db));
    setChosen(to ?? usual(fields));
    onChange();
  };
  const all = [...fields, ...chosen.filter((field) => !fields.includes(field))];
  return (
    <Dialog title={t().fields} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onClose();
        }}
      >
        <small class="soft">{t().fieldsHint}</small>
        <div class="options">
          {all.map((field) => {
            const isOn = chosen.includes(field);
            return (
              <Check
                key={field}
                label={field}
                value={isOn}
                disabled={!isOn && chosen.length >= MOST}
                onChange={(on) =>
                  choose(
                    on
                      ? all.filter((each) => each === field || chosen.includes(each))
                      : chosen.filter((each) => each !== field),
                  )
                }
              />
            );
          })}
        </div>
        <div class="actions">
          <Button onClick={() => choose(undefined)}>{t().usual}</Button>
          <button type="submit" class="primary">
            {words().ok}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
