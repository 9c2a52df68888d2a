import type { ComponentType } from 'preact';
import { lazy } from '../lazy';
import { LoggedIn } from '../login';
import type { Place } from '../router';
import { Databases } from './databases';

/**
 * The page of a place; `undefined` where there is none. Fauxton's addresses lead to the page that
 * does the same.
 */
export interface Found {
  page: ComponentType<{ place: Place }>;
  /** Which entry of the navigation it belongs to. */
  area: Area;
}

export type Area =
  | 'databases'
  | 'replication'
  | 'users'
  | 'configuration'
  | 'tasks'
  | 'cluster'
  | 'performance';

const Database = lazy(() => import('./database'));
const Replication = lazy(() => import('./replication'));
const Users = lazy(() => import('./users'));
const Configuration = lazy(() => import('./configuration'));
const Tasks = lazy(() => import('./tasks'));
const Cluster = lazy(() => import('./cluster'));
const Performance = lazy(() => import('./performance'));

export function find(place: Place): Found | undefined {
  switch (place.parts[0]) {
    case undefined:
    case '_all_dbs':
    case 'databases':
      return { page: Databases, area: 'databases' };
    case 'database':
      return place.parts.length > 1
        ? { page: Database, area: 'databases' }
        : { page: Databases, area: 'databases' };
    case 'replication':
      return { page: Replication, area: 'replication' };
    case 'users':
    case 'account':
    case 'changePassword':
    case 'createAdmin':
    case 'addAdmin':
      return { page: Users, area: 'users' };
    case '_config':
    case 'cors':
      return { page: Configuration, area: 'configuration' };
    case 'activetasks':
    case 'tasks':
      return { page: Tasks, area: 'tasks' };
    case 'cluster':
    case 'setup':
    case 'membership':
      return { page: Cluster, area: 'cluster' };
    case 'performance':
      return { page: Performance, area: 'performance' };
    case 'login':
      return { page: LoggedIn, area: 'databases' };
    default:
      return undefined;
  }
}
