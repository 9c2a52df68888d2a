import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { complain } from '../../../ui';
import type { Rows } from './rows';
import { t } from './texts';

/** Goes to a row by its number, or to where an id is or would be. */
export function Jump({ rows, to }: { rows: Rows; to: (index: number) => void }): JSX.Element {
  const [by, setBy] = useState<'row' | 'key'>('row');
  const [value, setValue] = useState('');
  const go = async () => {
    const index =
      by === 'key' ? await rows.indexOf(value) : Number(value.replace(/[.,\s]/g, '')) - 1;
    if (index === undefined || !(index >= 0)) return;
    to(Math.min(index, Math.max(0, (rows.count ?? 0) - 1)));
  };
  return (
    <form
      class="row-of jump"
      onSubmit={(event) => {
        event.preventDefault();
        void go().catch(complain);
      }}
    >
      <select
        aria-label={t().jumpBy}
        value={by}
        onChange={(event) => setBy(event.currentTarget.value as 'row' | 'key')}
      >
        <option value="row">{t().byRow}</option>
        <option value="key">{t().byKey}</option>
      </select>
      <input
        type="text"
        inputMode={by === 'row' ? 'numeric' : 'text'}
        aria-label={t().jumpTo}
        placeholder={t().jumpTo}
        value={value}
        autocapitalize="off"
        spellcheck={false}
        onInput={(event) => setValue(event.currentTarget.value)}
      />
      <button type="submit" disabled={value === ''}>
        {t().jump}
      </button>
    </form>
  );
}
