// What modules of the pages read while they load: the address, the kept language, the window.

const kept = new Map<string, string>();
const listeners = new Map<string, () => void>();

Object.assign(globalThis, {
  location: new URL('http://127.0.0.1:5984/proxy/_utils/#/'),
  localStorage: {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
  },
  history: {
    state: null,
    replaceState: (state: unknown, _: string, to: string) => {
      Object.assign(history, { state });
      Object.assign(location, { hash: to });
    },
  },
  addEventListener: (name: string, listener: () => void) => void listeners.set(name, listener),
});
Object.defineProperty(globalThis, 'navigator', {
  value: { language: 'en-US' },
  configurable: true,
});

/** Comes to an address, by a link or by a step of the history that has a state. */
export function comeTo(hash: string, state: unknown = null): void {
  Object.assign(history, { state });
  Object.assign(location, { hash });
  listeners.get('hashchange')?.();
}
