import { defineConfig, type Plugin } from 'vite';

// `SERVER=http://127.0.0.1:5984 npm run dev` serves the pages from their sources, on the data of
// that server: Settee or CouchDB.
const server =
  (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env.SERVER ??
  'http://127.0.0.1:5984';

/**
 * Leaves out what no page needs: Vite's function that loads a chunk's chunks beforehand, which are
 * there already, and Lezer's debugging, which asks for Node's environment.
 */
const smaller: Plugin = {
  name: 'smaller',
  apply: 'build',
  config: () => ({ define: { process: 'undefined' } }),
  transform: (_, id) =>
    id.includes('vite/preload-helper') ? 'export const __vitePreload = (load) => load();' : null,
};

export default defineConfig({
  plugins: [smaller],
  // The pages lie at any path, under any proxy.
  base: './',
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
              test: /src\/(api|json|ui|i18n|texts|drafts|router|lazy|health|palette|pages\/databases\/|pages\/database\/texts)|node_modules\/(preact|@preact)/,
              priority: 1,
            },
            {
              name: 'editor',
              test: /src\/editor|node_modules\/(@codemirror|@lezer|@marijn|style-mod|w3c-keyname|crelt)/,
            },
            { name: 'database', test: /src\/(csv|pages\/database\/)/ },
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
  return url === '/' || /^\/(src|node_modules|@|index\.html|shop\.json)/.test(url);
}
