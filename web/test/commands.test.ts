import assert from 'node:assert/strict';
import { test } from 'node:test';
import { actOf } from '../src/pages/performance/acts/command';

const JSON_TYPE = "-H 'Content-Type: application/json'";

test('commands that the page can run are read', () => {
  for (const [command, act] of [
    [
      `curl -X POST "$S/shop/_index" ${JSON_TYPE} -d '{"index":{"fields":["what","price"]}}'`,
      { kind: 'index', db: 'shop', body: '{"index":{"fields":["what","price"]}}' },
    ],
    [
      `curl -X POST "$S/a%2Fb/_index" ${JSON_TYPE} -d '{"index":{"fields":["it'\\''s"]}}'   # an index`,
      { kind: 'index', db: 'a/b', body: `{"index":{"fields":["it's"]}}` },
    ],
    [
      `curl -X PUT "$S/_node/_local/_config/compaction/enable" ${JSON_TYPE} -d '"true"'   # compact automatically`,
      { kind: 'config', section: 'compaction', key: 'enable', value: 'true' },
    ],
    [`curl -X POST "$S/shop/_compact" ${JSON_TYPE}`, { kind: 'compact', db: 'shop' }],
    [
      `curl -X POST "$S/shop/_view_cleanup" ${JSON_TYPE}`,
      { kind: 'cleanup', db: 'shop', what: '_view_cleanup' },
    ],
    [
      `curl -X DELETE "$S/shop/_index/_design/i%20x/json/by-a" ${JSON_TYPE}`,
      { kind: 'drop', db: 'shop', ddoc: 'i x', type: 'json', name: 'by-a' },
    ],
    [
      'curl "$S/shop/_design/a%24b"   # remove "views" from it',
      { kind: 'show', to: '#/database/shop/_design/a%24b' },
    ],
    [
      'curl "$S/shop/one?conflicts=true"   # then merge',
      { kind: 'show', to: '#/database/shop/_doc/one' },
    ],
    ['curl "$S/_scheduler/jobs"   # its state', { kind: 'show', to: '#/replication' }],
  ] as const)
    assert.deepEqual(actOf(command), act, command);
});

test('what a reader has to complete or decide has no button', () => {
  for (const command of [
    '# fields that equal a value first',
    'settee top $S   # the busy threads',
    'ulimit -n 65536',
    `curl -X POST "$S/$DB/_compact" ${JSON_TYPE}   # for each large DB`,
    `curl -X PUT "$S/_node/_local/_config/admins/anna" ${JSON_TYPE} -d '"PASSWORD"'`,
    `curl -X DELETE "$S/shop" ${JSON_TYPE}`,
    `curl -X DELETE "$S/shop/_design/x" ${JSON_TYPE}`,
    `curl -X POST "$S/_replicate" ${JSON_TYPE} -d '{"source":"a"}'`,
    `curl -X POST "$S/shop/_compact" ${JSON_TYPE} -d '{}'; rm -rf /`,
    `curl -X POST "$S/shop/_index" ${JSON_TYPE}`,
    `curl -X PUT "$S/shop/doc" ${JSON_TYPE} -d '"x"'`,
    `curl -X PUT "$S/_node/other/_config/a/b" ${JSON_TYPE} -d '"x"'`,
    'curl "http://elsewhere/"',
    '',
  ])
    assert.strictEqual(actOf(command), undefined, command);
});
