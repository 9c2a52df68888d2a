import type { JSX } from 'preact';
import { ApiError, ask, useResource } from '../../api';
import type { Place } from '../../router';
import { Badge, Loading, Problem } from '../../ui';
import { Members } from './members';
import { NodeFacts } from './node';
import { Shards } from './shards';
import { Slots } from './slots';
import { say } from './texts';
import type { Membership, Status } from './types';
import './cluster.css';

interface Whole {
  membership: Membership;
  /** `undefined` of a server that is no member of a cluster. */
  status: Status | undefined;
  up: 'ok' | 'maintenance_mode' | 'nolb' | string;
}

async function load(signal: AbortSignal, background: boolean): Promise<Whole> {
  const options = { signal, background };
  const [membership, status, up] = await Promise.all([
    ask<Membership>('GET', '/_membership', options),
    member(options),
    ask<{ status: string }>('GET', '/_up', options).catch(
      unless(404, { status: 'maintenance_mode' }),
    ),
  ]);
  return { membership, status, up: up.status };
}

/** Only a server with a log is a member of a cluster. */
async function member(options: {
  signal: AbortSignal;
  background: boolean;
}): Promise<Status | undefined> {
  const { log } = await ask<{ log?: string }>('GET', '/_node/_local/_config/cluster', options);
  return log
    ? ask<Status>('GET', '/_settee/cluster', options).catch(unless(404, undefined))
    : undefined;
}

/** An answer in place of an error of a status. */
function unless<T>(status: number, instead: T): (error: unknown) => T {
  return (error) => {
    if (error instanceof ApiError && error.status === status) return instead;
    throw error;
  };
}

export default function Cluster({ place }: { place: Place }): JSX.Element {
  const t = say();
  const { data, error, reload } = useResource<Whole>('cluster', load, 5000);
  return (
    <>
      <div class="page-head">
        <h1>{t.title}</h1>
        {data && (
          <Badge kind={data.up === 'ok' ? 'good' : 'warn'}>
            {data.up === 'ok' ? t.up : data.up === 'maintenance_mode' ? t.maintenance : data.up}
          </Badge>
        )}
      </div>
      <Problem error={error} retry={reload} />
      {!data && !error && <Loading />}
      {data && (
        <>
          <Members membership={data.membership} status={data.status} reload={reload} />
          {data.status && <Slots status={data.status} />}
          <Shards place={place} nodes={data.membership.cluster_nodes} />
          <NodeFacts isInMaintenance={data.up !== 'ok'} reload={reload} />
        </>
      )}
    </>
  );
}
