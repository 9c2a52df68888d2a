import type { JSX } from 'preact';
import { percent } from '../../i18n';
import { type Profile, totals } from './flame';
import { say } from './texts';

const ROWS = 15;

/** The functions with most time by themselves; beside another profile, those that grew most. */
export function Bottom({
  profile,
  before,
}: {
  profile: Profile;
  before: Profile | undefined;
}): JSX.Element {
  const t = say();
  const now = totals(profile.root);
  const was = before && totals(before.root);
  const rows = [...now].map(([name, of]) => ({ name, ...of, before: was?.get(name)?.all ?? 0 }));
  const shown = was
    ? rows
        .filter((row) => row.all - row.before > 0.001)
        .sort((a, b) => b.all - b.before - (a.all - a.before))
    : rows.filter((row) => row.self > 0).sort((a, b) => b.self - a.self);
  return (
    <section class="part">
      <h2>{was ? t.grew : t.top}</h2>
      <table class="plain" aria-label={was ? t.grew : t.top}>
        <thead>
          <tr>
            <th>{t.frame}</th>
            <th class="end">{was ? t.before : t.self}</th>
            <th class="end">{was ? t.after : t.withCallees}</th>
          </tr>
        </thead>
        <tbody>
          {shown.slice(0, ROWS).map((row) => (
            <tr key={row.name}>
              <td class="mono">{row.name}</td>
              <td class="end">{percent(was ? row.before : row.self)}</td>
              <td class="end">{percent(row.all)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
