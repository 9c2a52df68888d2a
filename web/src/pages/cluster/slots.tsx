import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { count } from '../../i18n';
import { Badge, type Column, Table } from '../../ui';
import { say } from './texts';
import { lag, type Slot, type Status, state } from './types';

/** All slots at a look, and the numbers of each. */
export function Slots({ status }: { status: Status }): JSX.Element {
  const t = say();
  const [goTo, setGoTo] = useState({ index: 0, round: 0 });
  const names = new Map(status.nodes.map((node) => [node.node, node.name]));
  const able = status.slots.filter((slot) => slot.takes_writes).length;
  const columns: Column<Slot>[] = [
    { id: 'slot', name: t.slot, width: '5.5rem', cell: (slot) => slot.slot },
    {
      id: 'state',
      name: t.state,
      width: 'minmax(0, 1fr)',
      cell: (slot) => <Badge kind={state(slot)}>{slot.takes_writes ? t.writes : t.noWrites}</Badge>,
    },
    {
      id: 'applied',
      name: t.applied,
      width: '7rem',
      align: 'end',
      isExtra: true,
      cell: (slot) => count(slot.next_offset),
    },
    {
      id: 'stable',
      name: t.stable,
      width: '7rem',
      align: 'end',
      isExtra: true,
      cell: (slot) => count(slot.stable),
    },
    {
      id: 'behind',
      name: t.behind,
      width: '6.5rem',
      align: 'end',
      cell: (slot) => count(lag(slot)),
    },
    {
      id: 'replicas',
      name: t.replicas,
      isExtra: true,
      cell: (slot) => slot.members.map((node) => names.get(node) ?? node).join(', '),
    },
    {
      id: 'reason',
      name: t.reason,
      isExtra: true,
      cell: (slot) => <span title={slot.reason ?? ''}>{slot.reason ?? ''}</span>,
    },
  ];
  return (
    <section class="part">
      <div class="bar">
        <h2>{t.slots}</h2>
        <span class="soft">{t.able(count(able), count(status.slots.length))}</span>
      </div>
      <div class="slot-map">
        {status.slots.map((slot, index) => {
          const said = `${t.slot} ${slot.slot}: ${slot.takes_writes ? t.writes : t.noWrites}${slot.reason ? `, ${slot.reason}` : ''}`;
          return (
            <button
              key={slot.slot}
              type="button"
              tabIndex={-1}
              class={state(slot)}
              aria-label={said}
              title={said}
              onClick={() => setGoTo({ index, round: goTo.round + 1 })}
            />
          );
        })}
      </div>
      <div class="slot-list">
        <Table
          label={t.slots}
          columns={columns}
          count={status.slots.length}
          row={(n) => status.slots[n]}
          goTo={goTo.round ? goTo : undefined}
          rowHeight={34}
        />
      </div>
    </section>
  );
}
