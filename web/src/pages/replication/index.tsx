import type { JSX } from 'preact';
import type { Place } from '../../router';
import { JobPage, OncePage } from './job';
import { List } from './list';
import { Edit, New } from './wizard';
import './replication.css';

/** `_create[/database]` and `id/…` are Fauxton's. */
export default function Replication({ place }: { place: Place }): JSX.Element {
  const [, what = '', first = '', ...rest] = place.parts;
  const last = rest.join('/');
  switch (what) {
    case '_create':
    case '_replicate':
      return <New source={first} />;
    case 'id':
      return <JobPage db="_replicator" doc={[first, ...rest].join('/')} />;
    case 'doc':
      return <JobPage db={first} doc={last} />;
    case 'edit':
      return <Edit db={first} doc={last} />;
    case 'job':
      return <OncePage id={first} />;
    default:
      return <List />;
  }
}
