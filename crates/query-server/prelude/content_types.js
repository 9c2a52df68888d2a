// Names of content types, and which of them an Accept header wants most.

const typesOf = { __proto__: null };
const keyOf = { __proto__: null };

function registerType(key) {
  const types = [];
  for (let i = 1; i < arguments.length; i++) {
    const type = toText(arguments[i]);
    push(types, type);
    keyOf[type] = key;
  }
  typesOf[key] = types;
}

registerType("all", "*/*");
registerType("text", "text/plain; charset=utf-8", "txt");
registerType("html", "text/html; charset=utf-8");
registerType("xhtml", "application/xhtml+xml", "xhtml");
registerType("xml", "application/xml", "text/xml", "application/x-xml");
registerType("js", "text/javascript", "application/javascript", "application/x-javascript");
registerType("css", "text/css");
registerType("ics", "text/calendar");
registerType("csv", "text/csv");
registerType("rss", "application/rss+xml");
registerType("atom", "application/atom+xml");
registerType("yaml", "application/x-yaml", "text/yaml");
registerType("multipart_form", "multipart/form-data");
registerType("url_encoded_form", "application/x-www-form-urlencoded");
registerType("json", "application/json", "text/x-json");

/** A media type or range: { type, subtype, params, q }. */
function mediaRange(text) {
  const parts = split(text, ";");
  const full = trim(parts[0]);
  const names = split(full === "*" ? "*/*" : full, "/");
  const params = { __proto__: null };
  for (let i = 1; i < parts.length; i++) {
    const pair = split(parts[i], "=");
    if (pair.length === 2) params[trim(pair[0])] = trim(pair[1]);
  }
  let q = params.q === undefined ? 1 : parseNumber(params.q);
  if (!(q >= 0 && q <= 1)) q = 1;
  return { __proto__: null, type: names[0], subtype: names[1], params, q };
}

/** How closely a range names a type; -1 when it does not. */
function fitness(range, target) {
  const wild = (a, b) => a === b || a === "*" || b === "*";
  if (!wild(range.type, target.type) || !wild(range.subtype, target.subtype)) return -1;
  let score = (range.type === target.type ? 100 : 0) + (range.subtype === target.subtype ? 10 : 0);
  const names = keysOf(target.params);
  for (let i = 0; i < names.length; i++) {
    if (names[i] !== "q" && range.params[names[i]] === target.params[names[i]]) score++;
  }
  return score;
}

/** The supported type that an Accept header names most closely, then wants most; of equals the last. */
function bestType(supported, accept) {
  const texts = split(accept, ",");
  const ranges = [];
  for (let i = 0; i < texts.length; i++) push(ranges, mediaRange(texts[i]));
  let best;
  let bestScore = -1;
  let bestQ = 0;
  for (let i = 0; i < supported.length; i++) {
    const target = mediaRange(supported[i]);
    let score = -1;
    let q = 0;
    for (let j = 0; j < ranges.length; j++) {
      const s = fitness(ranges[j], target);
      if (s > score) {
        score = s;
        q = ranges[j].q;
      }
    }
    if (q > 0 && (score > bestScore || (score === bestScore && q >= bestQ))) {
      best = supported[i];
      bestScore = score;
      bestQ = q;
    }
  }
  return best;
}
