import type { JSX } from 'preact';
import { useResource } from '../../../api';
import type { Place } from '../../../router';
import { link } from '../../../router';
import { Loading, Problem } from '../../../ui';
import { KINDS, type Kind, load, SINGLES } from './design';
import { DesignPage } from './designpage';
import { FunctionPage } from './function';
import { toDesign } from './links';
import { List } from './list';
import { NewView } from './new';
import { say } from './texts';
import { ViewPage } from './view';

/** Design documents: their views and other functions. */
export default function Views({ db, place }: { db: string; place: Place }): JSX.Element {
  const [first, name, what, kind, of] = place.parts.slice(2);
  if (first === 'new_view') return <NewView db={db} design={name ?? ''} />;
  if (name === undefined) return <List db={db} place={place} />;
  const known = [...KINDS, ...SINGLES].find((each) => each === kind);
  const view = what === '_view' || what === '_indexes' ? kind : undefined;
  return (
    <div class="views-page">
      <Crumbs
        db={db}
        design={name}
        last={view ?? (what === '_function' ? (of ?? kind) : undefined)}
      />
      <Loaded
        key={`${name}/${what}/${kind}/${of}`}
        {...{ db, name, place, view, kind: what === '_function' ? known : undefined, of: of ?? '' }}
      />
    </div>
  );
}

function Loaded({
  db,
  name,
  place,
  view,
  kind,
  of,
}: {
  db: string;
  name: string;
  place: Place;
  view: string | undefined;
  kind: Kind | undefined;
  of: string;
}): JSX.Element {
  const design = useResource(`${db}/${name}`, (signal) => load(db, name, signal));
  if (design.error !== undefined) return <Problem error={design.error} retry={design.reload} />;
  if (!design.data) return <Loading />;
  if (view !== undefined)
    return <ViewPage db={db} design={design.data} view={view} place={place} />;
  if (kind !== undefined)
    return <FunctionPage db={db} design={design.data} kind={kind} name={of} />;
  return <DesignPage db={db} design={design.data} onChange={design.reload} />;
}

function Crumbs({
  db,
  design,
  last,
}: {
  db: string;
  design: string;
  last: string | undefined;
}): JSX.Element {
  return (
    <nav class="crumbs" aria-label={say().designs}>
      <a href={link(['database', db, '_design'])}>{say().designs}</a>
      <span aria-hidden="true">/</span>
      {last === undefined ? <span>{design}</span> : <a href={toDesign(db, design)}>{design}</a>}
      {last !== undefined && <span aria-hidden="true">/</span>}
      {last !== undefined && <span>{last}</span>}
    </nav>
  );
}
