import type { JSX } from 'preact';
import { isAdmin } from '../../api';
import { lazy } from '../../lazy';
import { link, type Place } from '../../router';
import { type Tab, Tabs } from '../../ui';
import { Now } from './now';
import { say } from './texts';
import './performance.css';

const Doctor = lazy(() => import('./doctor'));
const Profile = lazy(() => import('./profile'));
const Slow = lazy(() => import('./slow'));

export default function Performance({ place }: { place: Place }): JSX.Element {
  const t = say();
  // Doctor, profile and configuration are for administrators; numbers are for `_metrics` too.
  const ids = isAdmin.value ? (['now', 'doctor', 'profile', 'slow'] as const) : (['now'] as const);
  const current = ids.find((id) => id === place.parts[1]) ?? 'now';
  const tabs: Tab[] = ids.map((id) => ({
    id,
    name: t[id],
    href: link(id === 'now' ? ['performance'] : ['performance', id]),
  }));
  return (
    <>
      <div class="page-head">
        <h1>{t.title}</h1>
      </div>
      {tabs.length > 1 && <Tabs label={t.title} tabs={tabs} current={current} />}
      {current === 'now' && <Now place={place} />}
      {current === 'doctor' && <Doctor />}
      {current === 'profile' && <Profile />}
      {current === 'slow' && <Slow />}
    </>
  );
}
