import type { JSX } from 'preact';
import { link, type Place } from '../../router';
import { Tabs } from '../../ui';
import { Cors } from './cors';
import { Settings } from './settings';
import { t } from './texts';
import './configuration.css';

/** `_config/NODE[/cors]` and `cors` are Fauxton's. */
export default function Configuration({ place }: { place: Place }): JSX.Element {
  const w = t();
  const isCors = place.parts[0] === 'cors' || place.parts.at(-1) === 'cors';
  const tabs = [
    { id: 'settings', name: w.settings, href: link(['_config']) },
    { id: 'cors', name: w.cors, href: link(['cors']) },
  ];
  return (
    <>
      <div class="page-head">
        <h1>{w.title}</h1>
      </div>
      <Tabs label={w.title} tabs={tabs} current={isCors ? 'cors' : 'settings'} />
      {isCors ? <Cors /> : <Settings />}
    </>
  );
}
