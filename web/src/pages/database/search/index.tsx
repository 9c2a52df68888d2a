import type { JSX } from 'preact';
import { ApiError, useResource } from '../../../api';
import { from, member, type Obj } from '../../../json';
import { link } from '../../../router';
import { Loading, Problem } from '../../../ui';
import type { PartProps } from '../index';
import { designOf, load } from '../views/design';
import { say as ofViews } from '../views/texts';
import { Edit } from './edit';
import { Find } from './find';
import { type IndexProps, toIndex } from './links';
import { List } from './list';
import { New } from './new';
import { type Kind, MEMBER } from './request';
import './search.css';
import { say } from './texts';

/** Text indexes of both interfaces: asked, and written. */
export default function Search({ db, place, info }: PartProps): JSX.Element {
  const [first, design = '', kind, name = '', what] = place.parts.slice(2);
  if (first?.startsWith('new_')) return <New db={db} design={design} />;
  if (first !== '_design') return <List db={db} info={info} />;
  const isEdit = what === 'edit';
  return (
    <div class="views-page">
      <nav class="crumbs" aria-label={ofViews().texts}>
        <a href={link(['database', db, '_search'])}>{ofViews().texts}</a>
        <span aria-hidden="true">/</span>
        <a href={link(['database', db, '_design', design])}>{design}</a>
        <span aria-hidden="true">/</span>
        <span>{name}</span>
      </nav>
      <Loaded
        key={`${design}/${kind}/${name}/${isEdit}`}
        {...{ db, place, info, design, kind: kind as Kind, name, isEdit }}
      />
    </div>
  );
}

function Loaded({ isEdit, ...rest }: IndexProps & { isEdit: boolean }): JSX.Element {
  const { db, design, kind, name } = rest;
  const found = useResource(`${db}/${design}`, (signal) =>
    load(db, design, signal).catch((error: unknown) => {
      // A new index may be the first of its design document.
      if (isEdit && error instanceof ApiError && error.status === 404)
        return designOf(from({ _id: `_design/${design}` }) as Obj);
      throw error;
    }),
  );
  if (found.error !== undefined) return <Problem error={found.error} retry={found.reload} />;
  if (!found.data) return <Loading />;
  const isThere = member(found.data.doc, MEMBER[kind], name) !== undefined;
  return (
    <>
      {isThere && (
        <nav class="row-of" aria-label={name}>
          <a
            class="button"
            href={toIndex(db, design, kind, name)}
            aria-current={isEdit ? undefined : 'page'}
          >
            {say().find}
          </a>
          <a
            class="button"
            href={toIndex(db, design, kind, name, 'edit')}
            aria-current={isEdit ? 'page' : undefined}
          >
            {say().definition}
          </a>
        </nav>
      )}
      {isEdit ? (
        <Edit {...rest} loaded={found.data} />
      ) : isThere ? (
        <Find {...rest} doc={found.data.doc} />
      ) : (
        <Problem error={new ApiError(404, 'not_found', name, null)} />
      )}
    </>
  );
}
