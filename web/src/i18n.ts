import { signal } from '@preact/signals';

export type Language = 'en' | 'de';

const KEPT = 'settee-language';

function first(): Language {
  const wanted = localStorage.getItem(KEPT) ?? navigator.language;
  return wanted.startsWith('de') ? 'de' : 'en';
}

export const language = signal<Language>(first());

export function speak(to: Language): void {
  localStorage.setItem(KEPT, to);
  language.value = to;
}

/** Texts in all languages: those of the other languages have the shape of the English ones. */
export function texts<T>(en: T, de: T): () => T {
  return () => (language.value === 'de' ? de : en);
}

/** A count as it is shown, with the name of what is counted: "1 row", "2 rows". */
export function counted(n: string, one: string, more: string): string {
  return `${n} ${n === '1' ? one : more}`;
}

const formats = new Map<string, Intl.NumberFormat>();

function format(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = language.value + JSON.stringify(options);
  const found = formats.get(key) ?? new Intl.NumberFormat(language.value, options);
  formats.set(key, found);
  return found;
}

/** 1234567 as 1,234,567. */
export function count(value: number): string {
  return format({}).format(value);
}

/** 0.123 as 12.3 %. */
export function percent(value: number): string {
  return format({ style: 'percent', maximumFractionDigits: value < 0.1 ? 1 : 0 }).format(value);
}

const UNITS = ['byte', 'kilobyte', 'megabyte', 'gigabyte', 'terabyte'];

/** Bytes in units of 1,000. */
export function bytes(value: number): string {
  const power = Math.min(
    UNITS.length - 1,
    Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)),
  );
  const scaled = value / 1000 ** power;
  return format({
    style: 'unit',
    unit: UNITS[power] ?? 'byte',
    unitDisplay: power === 0 ? 'long' : 'short',
    maximumFractionDigits: scaled < 10 ? 1 : 0,
  }).format(scaled);
}

/** A length of time, given in seconds. */
export function duration(seconds: number): string {
  const [unit, scaled] =
    seconds < 0.001
      ? ['microsecond', seconds * 1e6]
      : seconds < 1
        ? ['millisecond', seconds * 1e3]
        : seconds < 120
          ? ['second', seconds]
          : seconds < 7200
            ? ['minute', seconds / 60]
            : seconds < 172_800
              ? ['hour', seconds / 3600]
              : (['day', seconds / 86_400] as const);
  return format({
    style: 'unit',
    unit: unit as string,
    unitDisplay: 'short',
    maximumFractionDigits: (scaled as number) < 10 ? 1 : 0,
  }).format(scaled as number);
}

/** A moment, of what `Date` understands. */
export function moment(value: string | number): string {
  const date = new Date(value);
  return Number.isNaN(date.getTime())
    ? String(value)
    : new Intl.DateTimeFormat(language.value, { dateStyle: 'medium', timeStyle: 'medium' }).format(
        date,
      );
}
