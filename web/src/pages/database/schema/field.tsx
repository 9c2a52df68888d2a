import type { ComponentChildren, JSX } from 'preact';
import { count, percent } from '../../../i18n';
import type { Obj } from '../../../json';
import { link } from '../../../router';
import { Badge, Icon, Progress, style } from '../../../ui';
import { brief } from '../views/source';
import { type Bin, type Field, nameOf } from './model';
import { canBeQueried, condition, equalTo, exists, ofType, queryOf, within } from './query';
import { say } from './texts';

interface Props {
  db: string;
  field: Field;
  /** Documents in the sample. */
  all: number;
}

/** A field: its types and share, and below these its values. */
export function FieldRow({
  db,
  field,
  all,
  isOpen,
  onToggle,
}: Props & { isOpen: boolean; onToggle: (is: boolean) => void }): JSX.Element {
  const t = say();
  const name = nameOf(field.path);
  const share = t.share(percent(field.docs / all));
  return (
    <details open={isOpen} onToggle={(event) => onToggle(event.currentTarget.open)}>
      <summary>
        <code class="schema-name">
          <Icon name={isOpen ? 'down' : 'right'} />
          {name}
        </code>
        <span class="schema-types">
          {field.types.map(([type, n]) => (
            <Badge key={type}>
              {type === 'string' && field.isTime ? t.time : t.typeNames[type]}
              {field.types.length > 1 && ` ${percent(n / field.values)}`}
            </Badge>
          ))}
        </span>
        <span class="schema-share">
          <Progress value={field.docs / all} label={`${name}: ${share}`} />
          <small class="soft end">{percent(field.docs / all)}</small>
        </span>
      </summary>
      {isOpen && <Values db={db} field={field} all={all} />}
    </details>
  );
}

/** Leads to the query that finds these documents. */
function ToQuery({
  db,
  field,
  test,
  label,
  children,
}: {
  db: string;
  field: Field;
  test: Obj;
  label?: string;
  children: ComponentChildren;
}): JSX.Element {
  if (!canBeQueried(field.path)) return <span>{children}</span>;
  const q = queryOf(condition(field.path, test));
  return (
    <a href={link(['database', db, '_find'], { q, run: '1' })} aria-label={label} title={label}>
      {children}
    </a>
  );
}

function Values({ db, field, all }: Props): JSX.Element {
  const t = say();
  const { top, bins, distinct, types, values } = field;
  const isUnique = top.length > 0 && top.every(([, n]) => n === 1);
  const to = { db, field };
  return (
    <div class="schema-values">
      <section>
        <h3>{t.types}</h3>
        <ul>
          {types.map(([type, n]) => (
            <li key={type}>
              <ToQuery {...to} test={ofType(type)}>
                {t.typeNames[type]}
              </ToQuery>{' '}
              <span class="soft">
                {count(n)} · {percent(n / values)}
              </span>
            </li>
          ))}
        </ul>
        {!field.path.includes(null) && (
          <ul>
            <li>
              <ToQuery {...to} test={exists(true)}>
                {t.having}
              </ToQuery>{' '}
              <span class="soft">{count(field.docs)}</span>
            </li>
            {field.docs < all && (
              <li>
                <ToQuery {...to} test={exists(false)}>
                  {t.missing}
                </ToQuery>{' '}
                <span class="soft">{count(all - field.docs)}</span>
              </li>
            )}
          </ul>
        )}
        <p class="soft">{t.explain}</p>
      </section>
      {top.length > 0 && (
        <section>
          <h3>{t.top}</h3>
          <ol>
            {top.map(([value, n]) => (
              <li key={brief(value)}>
                <ToQuery {...to} test={equalTo(value)}>
                  <code>{brief(value, 60)}</code>
                </ToQuery>
                {!isUnique && (
                  <span class="soft">
                    {' '}
                    {count(n)} · {percent(n / values)}
                  </span>
                )}
              </li>
            ))}
          </ol>
          <p class="soft">
            {distinct === undefined ? t.many : isUnique ? t.unique : t.distinct(count(distinct))}
          </p>
        </section>
      )}
      {bins.length > 1 && (
        <section>
          <h3>{t.bins}</h3>
          <Bins {...to} />
        </section>
      )}
    </div>
  );
}

/** Bars of a distribution. Each leads to the query of its range. */
function Bins({ db, field }: { db: string; field: Field }): JSX.Element {
  const t = say();
  const most = Math.max(...field.bins.map((bin) => bin.count));
  const said = ({ from, to, count: n }: Bin) =>
    to === undefined ? t.lastBin(brief(from), count(n)) : t.bin(brief(from), brief(to), count(n));
  const [first, last] = [field.bins[0], field.bins.at(-1)];
  return (
    <>
      <ol class="schema-bins">
        {field.bins.map((bin) => (
          <li key={brief(bin.from)}>
            <ToQuery db={db} field={field} test={within(bin)} label={said(bin)}>
              <span
                ref={(element) => style(element, { 'block-size': `${(bin.count / most) * 100}%` })}
              />
            </ToQuery>
          </li>
        ))}
      </ol>
      <p class="soft schema-edges">
        <span>{brief(first?.from)}</span>
        <span>{brief(last?.to ?? last?.from)}</span>
      </p>
    </>
  );
}
