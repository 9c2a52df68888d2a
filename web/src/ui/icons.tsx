import type { JSX } from 'preact';

/** Drawn for a square of 16 by 16, in the colour of the text. */
const PATHS = {
  database:
    'M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2Zm0 0v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2',
  document: 'M4 1.8h5l3 3v9.4H4zM9 1.8v3h3M6 8h4M6 10.8h4',
  replicate: 'M2.5 5.5h9l-2.5-3M13.5 10.5h-9l2.5 3',
  users:
    'M6 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5ZM1.8 13.5c0-2.5 1.9-4 4.2-4s4.2 1.5 4.2 4M10.5 2.8a2.4 2.4 0 0 1 0 4.4M12 9.9c1.4.6 2.2 1.9 2.2 3.6',
  settings: 'M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M9 2.8v3.4h3V2.8zM4 9.8v3.4h3V9.8z',
  tasks: 'M2 3.5h12M2 8h8M2 12.5h5M12 9.5v5M9.5 12h5',
  cluster: 'M8 5.5v2.5m0 0L4 10.5M8 8l4 2.5M6 1.8h4v3.7H6zM1.8 10.5h4v3.7h-4zM10.2 10.5h4v3.7h-4z',
  performance: 'M2 13.5h12M3.5 11l3-5 3 3 3.5-6.5',
  search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Zm3.3-1.2 3.7 3.7',
  add: 'M8 3v10M3 8h10',
  remove: 'M2.5 4.5h11M6 4.5v-2h4v2M4 4.5l.7 9h6.6l.7-9M6.7 7v4M9.3 7v4',
  edit: 'M3 13l.7-3L10.5 3 13 5.5 6 12.3zM9 4.5 11.5 7',
  close: 'M4 4l8 8M12 4l-8 8',
  check: 'M3 8.5 6.5 12 13 4.5',
  warning: 'M8 2 1.8 13.2h12.4zM8 6.5v3.2M8 11.6v.1',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 7.3v3.5M8 5.1v.1',
  left: 'M10 3 5 8l5 5',
  right: 'M6 3l5 5-5 5',
  down: 'M3 6l5 5 5-5',
  up: 'M3 10l5-5 5 5',
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  more: 'M3.5 8v.1M8 8v.1M12.5 8v.1',
  reload: 'M13 8a5 5 0 1 1-1.5-3.5L13 6M13 2.5V6H9.5',
  play: 'M5 3v10l8-5z',
  pause: 'M5.5 3v10M10.5 3v10',
  attach:
    'M12.5 7.5 7.7 12.3a2.8 2.8 0 0 1-4-4l5.2-5.2a1.9 1.9 0 0 1 2.7 2.7L6.4 11a.9.9 0 0 1-1.3-1.3l4.5-4.5',
  branch:
    'M4.5 3v10M4.5 9.5c4 0 7-1 7-4.5M4.5 4.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM4.5 14.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM11.5 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z',
  copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z',
  download: 'M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11',
  upload: 'M8 10.5v-8M4.5 6 8 2.5 11.5 6M2.5 13.5h11',
  lock: 'M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5',
  out: 'M6.5 2.5h-4v11h4M6 8h8M11 5l3 3-3 3',
  filter: 'M2 3h12L9.5 8.5V13l-3-1.5v-3z',
  function: 'M10.5 2.8c-2-.6-2.7.3-3 2L6.3 11.5c-.3 1.7-1.3 2.4-2.8 1.7M5 6.5h5',
  star: 'M8 2l1.8 3.8 4.2.6-3 3 .7 4.2L8 11.6l-3.7 2 .7-4.2-3-3 4.2-.6z',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 4.5V8l2.5 1.5',
  moon: 'M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z',
} as const;

export type IconName = keyof typeof PATHS;

/** A picture beside a word. Alone it needs a label of its button. */
export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
