import type { JSX } from 'preact';
import { bytes, percent } from '../../i18n';
import { style } from '../../ui';
import './meter.css';

export interface Part {
  name: string;
  value: number;
  /** The number of its colour, 0 to 11. */
  colour: number;
  /** What is said of it; its share without. */
  said?: string;
}

/** How much of what there is is used, and the most that it was. */
export function Meter({
  label,
  used,
  of,
  peak,
  say = bytes,
}: {
  label: string;
  used: number;
  of: number;
  peak?: number | undefined;
  say?: (value: number) => string;
}): JSX.Element {
  const share = of > 0 ? Math.min(1, used / of) : 0;
  const text = `${say(used)} / ${say(of)}`;
  return (
    <div class="meter">
      <span>{label}</span>
      <span class="end soft">
        {text} {of > 0 && <b>{percent(used / of)}</b>}
      </span>
      <div
        class="meter-bar"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={1}
        aria-valuenow={Math.round(share * 1000) / 1000}
        aria-valuetext={text}
      >
        <div
          class={share > 0.95 ? 'bad' : share > 0.8 ? 'warn' : ''}
          ref={(element) => style(element, { 'inline-size': `${share * 100}%` })}
        />
        {peak !== undefined && peak > used && of > 0 && (
          <i
            ref={(element) =>
              style(element, { 'inset-inline-start': `${Math.min(1, peak / of) * 100}%` })
            }
            title={say(peak)}
          />
        )}
      </div>
    </div>
  );
}

/** What a whole is made of: one bar, and below it what its colours are. */
export function Stack({ label, parts }: { label: string; parts: Part[] }): JSX.Element {
  const all = parts.reduce((sum, part) => sum + part.value, 0) || 1;
  const shown = parts.filter((part) => part.value / all > 0.0005);
  const said = (part: Part) => part.said ?? percent(part.value / all);
  return (
    <div class="stack">
      <div
        class="stack-bar"
        role="img"
        aria-label={`${label}: ${shown.map((part) => `${part.name} ${said(part)}`).join(', ')}`}
      >
        {shown.map((part) => (
          <div
            key={part.name}
            class={`colour-${part.colour % 12}`}
            title={`${part.name}: ${said(part)}`}
            ref={(element) => style(element, { 'flex-grow': String(part.value / all) })}
          />
        ))}
      </div>
      <ul class="stack-key">
        {shown.map((part) => (
          <li key={part.name}>
            <i class={`colour-${part.colour % 12}`} />
            {part.name} <span class="soft">{said(part)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
