// S=http://NAME:PASSWORD@127.0.0.1:5984 node quickstart.mjs
const server = new URL(process.env.S);
const login = `${decodeURIComponent(server.username)}:${decodeURIComponent(server.password)}`;

async function request(method, path, body) {
  const response = await fetch(server.origin + path, {
    method,
    headers: {
      Authorization: `Basic ${Buffer.from(login).toString('base64')}`,
      'Content-Type': 'application/json',
    },
    body: body && JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}

// A database, and three documents.
console.log('database:', (await request('PUT', '/quickstart')).status);
const docs = [
  { _id: 'tea', price: 4.5 },
  { _id: 'milk', price: 1.25 },
  { _id: 'pot', price: 24.9 },
];
console.log('documents:', (await request('POST', '/quickstart/_bulk_docs', { docs })).status);

// An update has the revision that it replaces: the one that was read.
const tea = (await request('GET', '/quickstart/tea')).body;
const update = await request('PUT', '/quickstart/tea', { ...tea, price: 5 });
console.log('update:', update.status);

// That revision is no longer the latest: somebody else was faster.
const late = await request('PUT', '/quickstart/tea', { ...tea, price: 6 });
console.log('conflict:', late.status);

// A query.
const query = { selector: { price: { $lt: 10 } }, fields: ['_id'] };
const found = (await request('POST', '/quickstart/_find', query)).body.docs;
console.log('found:', found.map((doc) => doc._id).join(' '));

await request('DELETE', '/quickstart');
