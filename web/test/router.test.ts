import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forget, place, recall, refine, remember } from '../src/router';
import { comeTo } from './page';

/** A list that is scrolled, and the document that is opened from it. */
function scrolled(list: string, to: number): unknown {
  comeTo('#/users');
  comeTo(list);
  remember('top', to);
  const { state } = history;
  comeTo('#/database/shop/_doc/one');
  return state;
}

test('a step back finds what its page remembers', () => {
  const state = scrolled('#/database/shop/_all_docs', 7);
  assert.strictEqual(recall('top'), undefined);
  comeTo('#/users');
  comeTo('#/database/shop/_all_docs', state);
  assert.strictEqual(recall('top'), 7);
  assert.strictEqual(recall('other'), undefined);
});

test('a link within one database does so too, one from elsewhere does not', () => {
  scrolled('#/database/shop/_all_docs', 8);
  comeTo('#/database/shop/_all_docs');
  assert.strictEqual(recall('top'), 8);
  comeTo('#/users');
  comeTo('#/database/shop/_all_docs');
  assert.strictEqual(recall('top'), undefined);
  comeTo('#/database/other/_all_docs');
  comeTo('#/database/shop/_all_docs');
  assert.strictEqual(recall('top'), undefined);
});

test('what is remembered now is not recalled before the step is left', () => {
  const state = scrolled('#/database/shop/_all_docs', 9);
  comeTo('#/database/shop/_all_docs', state);
  assert.strictEqual(recall('top'), 9);
  remember('top', 10);
  assert.strictEqual(recall('top'), undefined);
  comeTo('#/users');
  comeTo('#/database/shop/_all_docs', state);
  assert.strictEqual(recall('top'), 10);
});

test('a changed query is the same step', () => {
  comeTo('#/database/shop/_find');
  refine({ q: 'x' });
  remember('ran', 'x');
  const [{ state }, { hash }] = [history, location];
  assert.strictEqual(place.value.query.get('q'), 'x');
  comeTo('#/database/shop/_doc/one');
  comeTo(hash, state);
  assert.strictEqual(recall('ran'), 'x');
  comeTo('#/database/shop/_doc/one');
  comeTo('#/database/shop/_find');
  assert.strictEqual(recall('ran'), 'x');
});

test('a log-out forgets all', () => {
  const state = scrolled('#/database/shop/_all_docs', 11);
  forget();
  comeTo('#/database/shop/_all_docs', state);
  assert.strictEqual(recall('top'), undefined);
  comeTo('#/');
});
