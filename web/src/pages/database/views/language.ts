const MAPS: Record<string, string> = {
  javascript: 'function (doc) {\n  emit(doc._id, 1);\n}',
  nodejs: 'function (doc) {\n  emit(doc._id, 1);\n}',
  python: 'def fun(doc):\n    yield doc["_id"], 1',
  erlang: 'fun({Doc}) ->\n  Emit(proplists:get_value(<<"_id">>, Doc), 1)\nend.',
};

/** The languages that the page suggests. */
export const LANGUAGES = Object.keys(MAPS);

/** The first map function of a new view. */
export function beginOf(language: string): string {
  return MAPS[language] ?? '';
}

/** The grammar of the editor for functions in this language. */
export function modeOf(language: string): 'javascript' | 'text' {
  return language === 'javascript' || language === 'nodejs' || language === ''
    ? 'javascript'
    : 'text';
}
