import { defineConfig, type Plugin } from 'vite';

// `SERVER=http://127.0.0.1:5984 npm run dev` serves the pages from their sources, on the data of
// that server: Settee or CouchDB.
const server =
  (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env.SERVER ??
  'http://127.0.0.1:5984';

/**
 * A chunk that is loaded later needs others that are there already: Vite's function, which loads them
 * beforehand, is left out.
 */
const loadsPlainly: Plugin = {
  name: 'loads-plainly',
  transform: (_, id) =>
    id.includes('vite/preload-helper') ? 'export const __vitePreload = (load) => load();' : null,
};

export default defineConfig({
  plugins: [loadsPlainly],
  // The pages lie at any path, under any proxy.
  base: './',
  // Lezer's debugging, for Node.
  define: { process: 'undefined' },
  build: {
    target: 'es2022',
    // The same sources give the same names and bytes, so that `dist` can be compared.
    modulePreload: {
      polyfill: false,
      resolveDependencies: (_, dependencies, { hostType }) =>
        hostType === 'html' ? dependencies : [],
    },
    assetsInlineLimit: 0,
    // One style sheet, and few chunks: what lies in one is compressed together.
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: '[name].js',
        assetFileNames: '[name][extname]',
        advancedChunks: {
          groups: [
            // A group takes along what its modules need: what all need comes first.
            {
              name: 'base',
              test: /src\/(api|json|ui|i18n|texts|drafts|router|lazy|health|palette\/recent|pages\/databases\/|pages\/database\/texts)|node_modules\/(preact|@preact)/,
              priority: 1,
            },
            {
              name: 'editor',
              test: /src\/editor|node_modules\/(@codemirror|@lezer|@marijn|style-mod|w3c-keyname|crelt)/,
            },
            { name: 'database', test: /src\/pages\/database\/(?!chart\/)/ },
            { name: 'chart', test: /src\/(csv|pages\/database\/chart\/)/ },
            {
              name: 'manage',
              test: /src\/pages\/(replication|users|configuration|tasks|cluster|performance)\//,
            },
          ],
        },
      },
    },
  },
  server: {
    proxy: {
      '^(?!/_utils/)': {
        target: server,
        changeOrigin: true,
        bypass: (req) => (ownFile(req.url ?? '/') ? req.url : null),
      },
    },
  },
});

/** Whether the development server has it itself. */
function ownFile(url: string): boolean {
  return url === '/' || /^\/(src|node_modules|@|index\.html)/.test(url);
}
