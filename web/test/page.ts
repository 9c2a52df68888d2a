// What modules of the pages read while they load: the address, the kept language, the window.

const kept = new Map<string, string>();

Object.assign(globalThis, {
  location: new URL('http://127.0.0.1:5984/proxy/_utils/#/'),
  localStorage: {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
  },
  history: {
    replaceState: (_: unknown, __: string, to: string) => Object.assign(location, { hash: to }),
  },
  addEventListener: () => undefined,
});
Object.defineProperty(globalThis, 'navigator', {
  value: { language: 'en-US' },
  configurable: true,
});
