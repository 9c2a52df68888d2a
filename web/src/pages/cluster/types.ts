/** What the endpoints of the cluster and of a node answer; what only Settee has is optional. */
export interface Membership {
  all_nodes: string[];
  cluster_nodes: string[];
}

export interface Member {
  node: string;
  name: string;
  address: string;
  is_live: boolean;
  is_me: boolean;
}

export interface Slot {
  slot: string;
  next_offset: number;
  stable: number;
  log_end: number | null;
  generation: number;
  members: string[];
  takes_writes: boolean;
  reason: string | null;
}

export interface Status {
  node: string;
  name: string;
  nodes: Member[];
  slots: Slot[];
}

export interface Budget {
  budget: number;
  used: number;
  peak?: number;
}

export interface System {
  uptime: number;
  memory: {
    resident?: number;
    limit?: number;
    limit_said_by?: string;
    budgets?: Record<string, Budget>;
  } & Record<string, unknown>;
  keyspace_bytes?: Record<string, number>;
  process_count?: number;
  open_connections?: number;
  open_feeds?: number;
  databases?: number;
  open_databases?: number;
  open_indexes?: number;
  databases_to_index?: number;
  message_queues?: Record<string, unknown>;
}

export interface Versions {
  couchdb?: string;
  settee?: string;
  javascript_engine?: { name: string; version?: string };
  collation_driver?: { name: string; library_version?: string; collator_version?: string };
  erlang?: { version: string };
}

/** How many records of its log a slot has not applied. */
export function lag(slot: Slot): number {
  return Math.max(0, (slot.log_end ?? slot.next_offset) - slot.next_offset);
}

/** How it is with a slot, the worst first. */
export function state(slot: Slot): 'bad' | 'warn' | 'good' {
  return !slot.takes_writes ? 'bad' : slot.reason !== null || lag(slot) > 1000 ? 'warn' : 'good';
}
