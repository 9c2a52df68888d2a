/** The URL of the server's API: next to the pages, below any path that a proxy adds. */
export const server = new URL(import.meta.env.DEV ? '/' : '../', location.href.replace(/#.*/s, ''));
