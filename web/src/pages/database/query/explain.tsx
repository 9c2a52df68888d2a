import type { JSX } from 'preact';
import { type Json, member, Obj, print, text } from '../../../json';
import { Badge, Icon, type IconName } from '../../../ui';
import { brief } from '../views/source';
import { conditions, fieldsOf, type Index, indexOf } from './ask';
import { Suggestion } from './suggest';
import { say } from './texts';

interface Step {
  icon: IconName;
  kind: '' | 'good' | 'warn' | 'bad';
  title: string;
  text?: string;
  code?: string;
}

/**
 * How the server answers a query: step by step, the indexes that it did not take, and one that
 * would serve better.
 */
export function Explained({
  db,
  partition,
  query,
  told,
}: {
  db: string;
  partition: string;
  query: string;
  told: Json;
}): JSX.Element {
  const t = say();
  const candidates = member(told, 'index_candidates');
  return (
    <div class="views-scroll views-page">
      <ol class="query-steps" aria-label={t.explain}>
        {steps(told).map((step) => (
          <li key={step.title} class={step.kind}>
            <Icon name={step.icon} />
            <div>
              <strong>{step.title}</strong>
              {step.text && <span> {step.text}</span>}
              {step.code && (
                <div>
                  <code>{step.code}</code>
                </div>
              )}
            </div>
          </li>
        ))}
      </ol>
      <Suggestion db={db} partition={partition} query={query} told={told} />
      <h2>{t.candidates}</h2>
      {Array.isArray(candidates) && candidates.length > 0 ? (
        <Candidates all={candidates} />
      ) : (
        <p class="soft text">{t.noCandidates}</p>
      )}
    </div>
  );
}

function shape(index: Index): string {
  return `${index.name} (${fieldsOf(index)
    .map(([name, to]) => (to === 'desc' ? `${name} desc` : name))
    .join(', ')})`;
}

function isOpen(key: Json | undefined): boolean {
  const first = Array.isArray(key) ? key[0] : key;
  return first === undefined || first === null || first === '<MAX>';
}

function steps(told: Json): Step[] {
  const t = say();
  const raw = member(told, 'index');
  if (!(raw instanceof Obj))
    return [{ icon: 'warning', kind: 'bad', title: t.noIndex, text: t.noIndexText }];
  const index = indexOf(raw);
  const start = member(told, 'mrargs', 'start_key');
  const end = member(told, 'mrargs', 'end_key');
  const isWhole = isOpen(start) && isOpen(end);
  const range = `${t.from} ${brief(start) || 'null'} ${t.to} ${brief(end) || 'null'}`;
  const isCovering = member(told, 'covering') === true;
  const inIndex = new Set(fieldsOf(index).map(([name]) => name));
  const left = [...new Set(conditions(member(told, 'selector')).map(([field]) => field))].filter(
    (field) => !inIndex.has(field),
  );
  const sort = member(told, 'opts', 'sort');
  const fields = member(told, 'fields');
  const aggregate = member(told, 'aggregate');
  const source: Step =
    index.type === 'special'
      ? isWhole
        ? { icon: 'database', kind: 'warn', title: t.scans, text: t.scanText, code: index.name }
        : {
            icon: 'database',
            kind: 'good',
            title: t.ids,
            text: t.rangeText,
            code: `${index.name} ${range}`,
          }
      : isWhole
        ? {
            icon: 'database',
            kind: 'warn',
            title: t.wholeIndex,
            text: t.wholeText,
            code: shape(index),
          }
        : {
            icon: 'database',
            kind: 'good',
            title: t.range,
            text: t.rangeText,
            code: `${shape(index)} ${range}`,
          };
  const filter: Step =
    left.length === 0
      ? { icon: 'filter', kind: 'good', title: t.noFilter, text: t.noFilterText }
      : { icon: 'filter', kind: '', title: t.filter, text: t.filterText, code: left.join(', ') };
  const all: Step[] = [
    source,
    isCovering
      ? { icon: 'document', kind: 'good', title: t.covering, text: t.coveringText }
      : {
          icon: 'document',
          kind: '',
          title: t.fetch,
          text: index.type === 'special' ? '' : t.fetchText,
        },
    filter,
  ];
  if (sort instanceof Obj && sort.size > 0)
    all.push({
      icon: 'down',
      kind: 'good',
      title: t.sort,
      text: t.sortText,
      code: [...sort].map(([name, to]) => `${name} ${text(to)}`).join(', '),
    });
  if (aggregate !== undefined)
    all.push({ icon: 'branch', kind: '', title: t.aggregate, code: print(aggregate) });
  else
    all.push({
      icon: 'pause',
      kind: '',
      title: t.limit,
      text: t.limitText(brief(member(told, 'skip')), brief(member(told, 'limit'))),
    });
  if (Array.isArray(fields) && fields.length > 0)
    all.push({ icon: 'check', kind: '', title: t.output, code: fields.map(text).join(', ') });
  else if (aggregate === undefined)
    all.push({ icon: 'check', kind: '', title: t.output, text: t.outputText });
  return all;
}

function Candidates({ all }: { all: Json[] }): JSX.Element {
  const t = say();
  return (
    <div class="scrolls">
      <table class="plain">
        <thead>
          <tr>
            <th>{t.index}</th>
            <th>{t.fields}</th>
            <th>{t.reason}</th>
          </tr>
        </thead>
        <tbody>
          {all.map((each) => {
            const index = indexOf(member(each, 'index'));
            const reasons = member(each, 'analysis', 'reasons');
            const isUsable = member(each, 'analysis', 'usable') === true;
            return (
              <tr key={`${index.ddoc}/${index.name}`}>
                <td>
                  {index.name}{' '}
                  <Badge kind={isUsable ? 'info' : ''}>{isUsable ? t.usable : t.unusable}</Badge>
                </td>
                <td>
                  <code>
                    {fieldsOf(index)
                      .map(([name]) => name)
                      .join(', ')}
                  </code>
                </td>
                <td>
                  {Array.isArray(reasons)
                    ? reasons
                        .map((reason) => text(member(reason, 'name')))
                        .map((name) => t.reasons[name] ?? name)
                        .join(' ')
                    : ''}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
