import { from, type Json, member, Obj, parse, print } from '../../../json';
import { put, sourceOf } from '../views/design';
import type { Kind } from './request';

export const BEGIN: Record<Kind, string> = {
  _nouveau: begin("'text', "),
  _search: begin(''),
};

function begin(type: string): string {
  return `function (doc) {\n  for (var name in doc) {\n    if (name[0] !== '_' && typeof doc[name] === 'string') {\n      index(${type}'default', doc[name], {store: true});\n    }\n  }\n}`;
}

/** Those that both interfaces have. */
export const ANALYZERS =
  'keyword simple standard whitespace classic email arabic armenian basque brazilian bulgarian catalan chinese cjk czech danish dutch edge_ngram english finnish french galician german greek hindi hungarian indonesian irish italian japanese latvian norwegian persian polish portuguese romanian russian simple_asciifolding spanish swedish thai turkish'.split(
    ' ',
  );

/** A definition as it is edited. Analyzers are names, or JSON. */
export interface Draft {
  source: string;
  analyzer: string;
  fields: string;
}

const named = (value: Json | undefined) =>
  typeof value === 'string' ? value : value === undefined ? '' : print(value);
export const analyzerOf = (source: string): Json | undefined =>
  source.trim() === '' ? undefined : /^\s*[{[]/.test(source) ? parse(source) : source.trim();

const isByField = (analyzer: Json | undefined) => member(analyzer, 'name') === 'perfield';

export function draftOf(kind: Kind, saved: Json | undefined): Draft {
  const source = saved === undefined ? BEGIN[kind] : sourceOf(member(saved, 'index'));
  const analyzer = member(saved, 'analyzer');
  if (kind === '_nouveau')
    return {
      source,
      analyzer: named(member(saved, 'default_analyzer')),
      fields: named(member(saved, 'field_analyzers')),
    };
  return isByField(analyzer)
    ? {
        source,
        analyzer: named(member(analyzer, 'default')),
        fields: named(member(analyzer, 'fields')),
      }
    : { source, analyzer: named(analyzer), fields: '' };
}

/** What is to be saved: of what is there, all else stays. */
export function definitionOf(kind: Kind, saved: Json | undefined, draft: Draft): Obj {
  const [main, fields] = [analyzerOf(draft.analyzer), analyzerOf(draft.fields)];
  const old = saved instanceof Obj ? saved : new Obj();
  const made = (at: string[], value: Json | undefined, to: Obj) =>
    value === undefined && member(to, ...at) === undefined ? to : put(to, at, value);
  let next = old;
  if (kind === '_nouveau')
    next = made(['field_analyzers'], fields, made(['default_analyzer'], main, next));
  else if (fields === undefined && !isByField(member(old, 'analyzer')))
    next = made(['analyzer'], main, next);
  else {
    const analyzer = member(old, 'analyzer');
    const byField = isByField(analyzer) ? (analyzer as Obj) : (from({ name: 'perfield' }) as Obj);
    next = put(next, ['analyzer'], made(['fields'], fields, made(['default'], main, byField)));
  }
  return put(next, ['index'], draft.source);
}
