import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLost } from '../src/api/connection';
import { ApiError, LostError } from '../src/api/errors';
import { JsonError, parse } from '../src/json';
import { wrongJson } from '../src/pages/database/views/source';
import { t as replication } from '../src/pages/replication/texts';
import { bare, meaning, short } from '../src/pages/replication/words';
import { explain } from '../src/ui/explain';
import { words } from '../src/ui/texts';

const refused = (status: number) => new ApiError(status, 'error', 'reason', 'abc');

test('each status has an explanation, and the words of the server', () => {
  const t = words();
  const expected: [number, string][] = [
    [400, t.bad],
    [401, t.unauthorized],
    [403, t.forbidden],
    [404, t.notFound],
    [409, t.conflict],
    [412, t.exists],
    [413, t.tooLarge],
    [418, t.bad],
    [429, t.busy],
    [500, t.fault],
    [503, t.busy],
  ];
  for (const [status, what] of expected) assert.strictEqual(explain(refused(status)).what, what);
  const { told, requestId } = explain(refused(500));
  assert.deepEqual([told, requestId], ['error: reason', 'abc']);
});

test('a 401 for a user who is logged in is a refusal', () => {
  const error = refused(401);
  error.isRefusal = true;
  assert.strictEqual(explain(error).what, words().forbidden);
});

test('errors that are not answers are explained too', () => {
  assert.deepEqual(
    [new Error('odd'), 'odd'].map((error) => explain(error).what),
    [words().odd, words().odd],
  );
});

test('a request without a response is to be tried again once the server is back', () => {
  isLost.value = true;
  assert.strictEqual(explain(new LostError()).what, words().lost);
  isLost.value = false;
  assert.strictEqual(explain(new LostError()).what, words().back);
});

test('a mistake in JSON is named with its line', () => {
  assert.match(wrongJson('{"a": 1\n "b": 2}') ?? '', /^Line 2, column 2: /);
  assert.strictEqual(wrongJson(' '), undefined);
  assert.strictEqual(wrongJson('{}'), undefined);
  let error: unknown;
  try {
    parse('{');
  } catch (thrown) {
    error = thrown;
  }
  assert.ok(error instanceof JsonError);
  assert.strictEqual(explain(error).what, words().noJson);
});

test('addresses are shown without their passwords', () => {
  assert.strictEqual(bare('http://a:b@host/db and https://c@d/'), 'http://host/db and https://d/');
  assert.strictEqual(short('http://u:p@127.0.0.1:5984/proxy/a%2Fb/'), 'a/b');
  assert.strictEqual(short('http://here:5984/db', ['http://here:5984']), 'db');
  assert.strictEqual(short('https://other.example.org/db'), 'other.example.org/db');
});

test('common errors of replications have an explanation', () => {
  const t = replication().errors;
  const expected: [string, string | undefined][] = [
    ['db_not_found: could not open http://a/', t.missing],
    ['unauthorized: Name or password is incorrect', t.unauthorized],
    ['{"error": "econnrefused"}', t.refused],
    ['request timed out', t.timeout],
    ['invalid peer certificate', t.certificate],
    ['something else', undefined],
  ];
  for (const [error, text] of expected) assert.strictEqual(meaning(error), text, error);
});
