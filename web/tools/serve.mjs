// Serves the built pages at /_utils/ before any server that speaks CouchDB's protocol, which gets
// all other requests:
//   [DIST=folder] node tools/serve.mjs PORT http://127.0.0.1:5984 [/sub-path]
// The pages have the policy that Settee gives them. With a sub-path it is a proxy as people put before a server; with DIST= the
// server's own pages are passed on as well.

import { readFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import { extname, join, normalize } from 'node:path';

const [port, to, under = ''] = process.argv.slice(2);
const target = new URL(to);
const dist = process.env.DIST ?? new URL('../dist/', import.meta.url).pathname;
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.json': 'application/json',
};
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src blob:; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

async function own(path, response) {
  const file = normalize(path.slice('/_utils/'.length) || 'index.html');
  try {
    const bytes = await readFile(join(dist, file));
    response.writeHead(200, {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
      'content-security-policy': POLICY,
      'cache-control': 'no-cache',
    });
    response.end(bytes);
  } catch {
    response.writeHead(404).end();
  }
}

createServer((incoming, response) => {
  if (!incoming.url.startsWith(under)) return response.writeHead(404).end();
  const path = incoming.url.slice(under.length);
  if (dist && path.startsWith('/_utils/')) return void own(path.replace(/\?.*/s, ''), response);
  const onward = request(
    {
      host: target.hostname,
      port: target.port,
      path,
      method: incoming.method,
      headers: incoming.headers,
    },
    (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
    },
  );
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  incoming.pipe(onward);
}).listen(Number(port), '127.0.0.1');
