// How a Node client script says what worked.
const { setTimeout: wait } = require('node:timers/promises');
const { isDeepStrictEqual } = require('node:util');

const url = process.env.SETTEE_URL;
const [name, password] = process.env.SETTEE_ADMIN.split(/:(.*)/s);
const urlWithAdmin = url.replace('://', `://${name}:${encodeURIComponent(password)}@`);

function check(what, ok, detail = '') {
  console.log(ok ? `ok ${what}` : `not ok ${what}: ${JSON.stringify(detail)}`);
}

function equal(what, actual, expected) {
  check(what, isDeepStrictEqual(actual, expected), { expected, actual });
}

/** The promise must fail with this status, and with CouchDB's `error` when one is named. */
async function fails(what, promise, status, error) {
  try {
    check(what, false, { succeeded: await promise });
  } catch (thrown) {
    const got = thrown.statusCode ?? thrown.status;
    check(what, got === status && (!error || thrown.error === error || thrown.name === error), { status: got, error: thrown.error, message: thrown.message });
  }
}

/** Everything that a stream holds, as text or as a Buffer. */
async function collect(stream, bytes = false) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  const whole = Buffer.concat(chunks);
  return bytes ? whole : whole.toString();
}

/** Whether `condition` becomes true in time. */
async function until(condition, timeoutMs = 30_000) {
  for (const end = Date.now() + timeoutMs; Date.now() < end; await wait(50)) {
    if (await condition()) return true;
  }
  return false;
}

function run(main) {
  main().then(() => console.log('done'), (thrown) => {
    console.error(thrown);
    process.exitCode = 1;
  });
}

module.exports = { url, name, password, urlWithAdmin, check, equal, fails, collect, until, run };
