import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Mistake } from '../../../editor';
import { Choice, TextField } from '../../../ui';
import { modeOf } from './language';
import { Code } from './shared';
import { say } from './texts';

const BUILT_IN = ['_sum', '_count', '_stats', '_approx_count_distinct'];
const FIRST_REDUCE = 'function (keys, values, rereduce) {\n  return sum(values);\n}';

/** None, one of the server's own, or a function. */
export function Reduce({
  reduce,
  begin,
  language,
  isReadOnly,
  mistakes,
  onChange,
  onSave,
}: {
  reduce: string;
  begin: string;
  language: string;
  isReadOnly: boolean;
  mistakes: Mistake[];
  onChange: (to: string) => void;
  onSave: () => void;
}): JSX.Element {
  const t = say();
  const isBuiltIn = reduce.startsWith('_');
  const is =
    reduce === '' ? '' : BUILT_IN.includes(reduce) ? reduce : isBuiltIn ? 'other' : 'custom';
  const [own, setOwn] = useState(begin || (modeOf(language) === 'javascript' ? FIRST_REDUCE : ''));
  const choose = (to: string) => onChange(to === 'custom' ? own : to === 'other' ? '_top_10' : to);
  return (
    <>
      <div class="views-options">
        <Choice
          label={t.reduce}
          value={is}
          onChange={choose}
          of={[
            ['', t.noReduce],
            ...BUILT_IN.map((name) => [name, name] as const),
            ['other', t.other],
            ['custom', t.custom],
          ]}
          disabled={isReadOnly}
        />
        {is === 'other' && (
          <TextField
            label={t.builtIn}
            value={reduce}
            onInput={(to) => onChange(to.startsWith('_') ? to : `_${to}`)}
            list={['_first', '_last', '_top_10', '_bottom_10']}
            disabled={isReadOnly}
          />
        )}
      </div>
      {is === 'custom' && (
        <Code
          isSmall
          label={t.ownReduce}
          mode={modeOf(language)}
          value={own}
          isReadOnly={isReadOnly}
          mistakes={mistakes}
          onSave={onSave}
          onChange={(to) => {
            setOwn(to);
            onChange(to || ' ');
          }}
        />
      )}
    </>
  );
}
