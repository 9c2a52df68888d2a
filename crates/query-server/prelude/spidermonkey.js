// What SpiderMonkey, CouchDB's engine, has beyond the language's standard, or where the standard leaves a choice: sorting by
// inconsistent comparisons, texts of a locale, `toSource`, the last match of all regular expressions.

const { setPrototypeOf } = Object;
const toObject = Object;
const BaseRegExp = RegExp;
const nativeSort = uncurry(Array.prototype.sort);
const nativeCompare = uncurry(String.prototype.localeCompare);
const nativeExec = uncurry(RegExp.prototype.exec);
const REPLACE = Symbol.replace;
const nativeReplace = uncurry(RegExp.prototype[REPLACE]);
const classOf = uncurry(Object.prototype.toString);
const functionText = uncurry(Function.prototype.toString);
const regExpText = uncurry(RegExp.prototype.toString);
const timeOf = uncurry(Date.prototype.getTime);
const numberOf = uncurry(Number.prototype.valueOf);
const textOf = uncurry(String.prototype.valueOf);
const booleanOf = uncurry(Boolean.prototype.valueOf);
const radixText = uncurry(Number.prototype.toString);

/** Defines methods as the language's own are. */
function defineMethods(prototype, methods) {
  const names = keysOf(methods);
  for (let i = 0; i < names.length; i++) {
    const value = methods[names[i]];
    defineProperty(prototype, names[i], { __proto__: null, value, writable: true, enumerable: false, configurable: true });
  }
}

// ---- sorting ----

/** Shorter arrays are sorted by insertion alone; longer ones in pieces of so many elements, which are merged. */
const INSERTION_MAX = 24;
const PIECE = 4;

/** An array on which nothing is found that users' code defined for arrays. */
function bareArray() {
  return setPrototypeOf([], null);
}

/** Sorts elements from `start` up to `end`. Of a comparison it matters only whether it is above zero. */
function insertionSort(list, start, end, compare) {
  for (let i = start + 1; i < end; i++) {
    const item = list[i];
    let j = i - 1;
    for (; j >= start; j--) {
      const other = list[j];
      if (!(compare(other, item) > 0)) break;
      list[j + 1] = other;
    }
    list[j + 1] = item;
  }
}

/** Merges the sorted elements from `start` up to `middle` with those from there up to `end`. */
function merge(from, to, start, middle, end, compare) {
  let i = start;
  let j = middle;
  let k = start;
  if (middle < end && compare(from[middle - 1], from[middle]) > 0) {
    while (i < middle && j < end) to[k++] = compare(from[i], from[j]) > 0 ? from[j++] : from[i++];
  }
  while (i < middle) to[k++] = from[i++];
  while (j < end) to[k++] = from[j++];
}

/** Sorts a list, and returns it or another one. */
function mergeSort(list, compare) {
  const length = list.length;
  if (length < INSERTION_MAX) {
    insertionSort(list, 0, length, compare);
    return list;
  }
  const within = (at) => (at < length ? at : length);
  for (let start = 0; start < length; start += PIECE) insertionSort(list, start, within(start + PIECE), compare);
  let from = list;
  let to = bareArray();
  for (let size = PIECE; size < length; size *= 2) {
    for (let start = 0; start < length; start += 2 * size) {
      merge(from, to, start, within(start + size), within(start + 2 * size), compare);
    }
    const merged = to;
    to = from;
    from = merged;
  }
  return from;
}

function lengthOf(object) {
  const length = +object.length;
  return length > 0 ? length - (length % 1) : 0;
}

/** Compares as a comparator does, except that undefined, which it does not see, comes last. */
function undefinedLast(compare) {
  return (a, b) => {
    if (a === undefined) return b === undefined ? 0 : 1;
    return b === undefined ? -1 : compare(a, b);
  };
}

/** Sorts an array by the merge sort of SpiderMonkey: where comparisons are inconsistent, the result depends on their sequence. */
function sortBy(array, compare) {
  const length = lengthOf(array);
  if (length < 2) return;
  // The array is not changed before all comparisons are done: one may throw.
  let list = bareArray();
  let hasUndefined = false;
  for (let i = 0; i < length; i++) {
    if (!(i in array)) continue;
    const value = array[i];
    if (value === undefined) hasUndefined = true;
    list[list.length] = value;
  }
  list = mergeSort(list, hasUndefined ? undefinedLast(compare) : compare);
  const found = list.length;
  for (let i = 0; i < found; i++) array[i] = list[i];
  // Holes come last.
  for (let i = found; i < length; i++) delete array[i];
}

defineMethods(Array.prototype, {
  sort(compare) {
    // Without a comparator there is no choice; one that cannot be called is an error.
    if (typeof compare !== "function") return nativeSort(this, compare);
    const array = toObject(this);
    sortBy(array, compare);
    return array;
  },
});

// ---- texts of a locale, which is that of the United States ----

/** Separates the two texts of a comparison: no text has it that has a place in the collation. */
const BETWEEN = "\uFFFE";

/** A number with three digits after the point at most, and commas between thousands. */
function numberText(number) {
  if (number !== number) return "NaN";
  const sign = number < 0 || (number === 0 && 1 / number < 0) ? "-" : "";
  if (number < 0) number = -number;
  if (number === Infinity) return sign + "∞";
  // Digits and the place of the point, of `12.5`, `1e+21` or `1.5e-7`.
  const text = toText(number);
  const e = find(text, "e");
  const plain = e < 0 ? text : cut(text, 0, e);
  const dot = find(plain, ".");
  let digits = dot < 0 ? plain : cut(plain, 0, dot) + cut(plain, dot + 1);
  let point = (dot < 0 ? plain.length : dot) + (e < 0 ? 0 : +cut(text, e + 1));
  while (point < 1) {
    digits = "0" + digits;
    point++;
  }
  while (digits.length < point) digits += "0";
  const end = point + 3;
  if (digits.length > end) {
    const up = codeAt(digits, end) >= 53;
    digits = cut(digits, 0, end);
    for (let i = end - 1, carry = up; carry; i--) {
      carry = i >= 0 && digits[i] === "9";
      if (i < 0) {
        digits = "1" + digits;
        point++;
      } else {
        digits = cut(digits, 0, i) + (carry ? "0" : toText(+digits[i] + 1)) + cut(digits, i + 1);
      }
    }
  }
  let last = digits.length;
  while (last > point && digits[last - 1] === "0") last--;
  let whole = "";
  for (let i = 0; i < point; i++) whole += (i > 0 && (point - i) % 3 === 0 ? "," : "") + digits[i];
  return sign + whole + (last > point ? "." + cut(digits, point, last) : "");
}

const dateParts = {
  __proto__: null,
  year: uncurry(Date.prototype.getFullYear),
  month: uncurry(Date.prototype.getMonth),
  day: uncurry(Date.prototype.getDate),
  hours: uncurry(Date.prototype.getHours),
  minutes: uncurry(Date.prototype.getMinutes),
  seconds: uncurry(Date.prototype.getSeconds),
};

const twoDigits = (number) => (number < 10 ? "0" : "") + number;

function dateText(date) {
  return dateParts.month(date) + 1 + "/" + dateParts.day(date) + "/" + dateParts.year(date);
}

function timeText(date) {
  const hours = dateParts.hours(date);
  const rest = ":" + twoDigits(dateParts.minutes(date)) + ":" + twoDigits(dateParts.seconds(date));
  return (hours % 12 === 0 ? 12 : hours % 12) + rest + (hours < 12 ? " AM" : " PM");
}

function ifValid(date, text) {
  const time = timeOf(date);
  return time !== time ? "Invalid Date" : text(date);
}

defineMethods(Number.prototype, {
  toLocaleString() {
    return numberText(numberOf(this));
  },
});

defineMethods(Date.prototype, {
  toLocaleString() {
    return ifValid(this, (date) => dateText(date) + ", " + timeText(date));
  },
  toLocaleDateString() {
    return ifValid(this, dateText);
  },
  toLocaleTimeString() {
    return ifValid(this, timeText);
  },
});

defineMethods(String.prototype, {
  localeCompare(that) {
    if (this === undefined || this === null) return nativeCompare(this, that);
    const a = toText(this);
    const b = toText(that);
    if (a === b) return 0;
    if (find(a, BETWEEN) >= 0 || find(b, BETWEEN) >= 0) return nativeCompare(a, b);
    return +host.collate(a + BETWEEN + b);
  },
});

// ---- toSource ----

function quoteSource(text) {
  let quoted = '"';
  for (let i = 0; i < text.length; i++) {
    const c = codeAt(text, i);
    const escape = find('"\\\b\f\n\r\t\v', text[i]);
    if (escape >= 0) quoted += "\\" + '"\\bfnrtv'[escape];
    else if (c >= 32 && c < 127) quoted += text[i];
    else {
      const hex = radixText(c, 16);
      quoted += c < 256 ? "\\x" + (hex.length < 2 ? "0" : "") + hex : "\\u" + cut("000" + hex, hex.length - 1);
    }
  }
  return quoted + '"';
}

function isIdentifier(name) {
  const first = codeAt(name, 0);
  if (name === "" || (first >= 48 && first <= 57)) return false;
  for (let i = 0; i < name.length; i++) if (!isWord(codeAt(name, i)) || codeAt(name, i) > 127) return false;
  return true;
}

function isIndex(name) {
  return toText(name >>> 0) === name;
}

function arraySource(array, around) {
  let text = "[";
  for (let i = 0; i < array.length; i++) {
    text += (i > 0 ? ", " : "") + (i in array ? sourceText(array[i], around) : "");
  }
  const endsEmpty = array.length > 0 && !(array.length - 1 in array);
  return text + (endsEmpty ? ",]" : "]");
}

function objectSource(object, around) {
  const names = keysOf(object);
  let text = "{";
  for (let i = 0; i < names.length; i++) {
    const name = isIdentifier(names[i]) || isIndex(names[i]) ? names[i] : quoteSource(names[i]);
    text += (i > 0 ? ", " : "") + name + ":" + sourceText(object[names[i]], around);
  }
  return text + "}";
}

/** The source of a value. `around` are the objects that it is in: undefined for the outermost value. */
function sourceText(value, around) {
  if (value === undefined) return "(void 0)";
  if (typeof value === "string") return quoteSource(value);
  if (typeof value === "number") return value === 0 && 1 / value < 0 ? "-0" : toText(value);
  if (typeof value === "function") return "(" + functionText(value) + ")";
  if (!isObject(value)) return toText(value);
  for (let outer = around; outer !== undefined; outer = outer.around) {
    if (outer.value === value) return isArray(value) ? "[]" : "{}";
  }
  const inner = { __proto__: null, value, around };
  switch (isArray(value) ? "array" : classOf(value)) {
    case "array":
      return arraySource(value, inner);
    case "[object Date]":
      return "(new Date(" + timeOf(value) + "))";
    case "[object RegExp]":
      return regExpText(value);
    case "[object Error]":
      return "(new " + describe(value.name) + "(" + quoteSource(describe(value.message)) + "))";
    case "[object Number]":
      return "(new Number(" + sourceText(numberOf(value), inner) + "))";
    case "[object String]":
      return "(new String(" + quoteSource(textOf(value)) + "))";
    case "[object Boolean]":
      return "(new Boolean(" + booleanOf(value) + "))";
    default:
      return around === undefined ? "(" + objectSource(value, inner) + ")" : objectSource(value, inner);
  }
}

defineMethods(Object.prototype, {
  toSource() {
    // A strict function has the value itself; methods of numbers and texts show the objects that these are.
    return sourceText(toObject(this), undefined);
  },
});
defineMethods(global, {
  uneval(value) {
    return sourceText(value, undefined);
  },
});

// ---- the last match ----

/**
 * Calls `remember` with each match before a function that replaces it is called. The engine finds all matches before it calls
 * such a function for the first; SpiderMonkey alternates.
 */
function replaceWith(remember) {
  const replace = function (text, replacement) {
    if (typeof replacement !== "function") return nativeReplace(this, text, replacement);
    return nativeReplace(this, text, function () {
      // The match and its groups, its index, the text, and the named groups if there are any.
      const last = arguments.length - 1;
      const at = typeof arguments[last] === "string" ? last : last - 1;
      remember(arguments[at], arguments[at - 1], arguments, at - 1);
      return apply(replacement, undefined, arguments);
    });
  };
  defineProperty(replace, "name", { __proto__: null, value: "[Symbol.replace]", configurable: true });
  const attributes = { __proto__: null, writable: true, enumerable: false, configurable: true };
  attributes.value = replace;
  defineProperty(BaseRegExp.prototype, REPLACE, attributes);
}

/** Has regular expressions remember the last match: in `RegExp.$1`, `RegExp.lastMatch` and so on. */
function keepMatches() {
  let input = "";
  // It can be set, which changes nothing else.
  let shown = "";
  let start = 0;
  let end = 0;
  let groups = bareArray();

  /** Remembers a match in a text. Its groups are the elements of `match` from 1 up to `count`. */
  function remember(text, index, match, count) {
    input = shown = text;
    start = index;
    end = index + match[0].length;
    groups = bareArray();
    for (let i = 1; i < count; i++) groups[i - 1] = match[i] === undefined ? "" : match[i];
  }

  defineMethods(BaseRegExp.prototype, {
    exec(text) {
      const of = toText(text);
      const match = nativeExec(this, of);
      if (match !== null) remember(of, match.index, match, match.length);
      return match;
    },
  });

  replaceWith(remember);

  function define(names, get, set) {
    for (let i = 0; i < names.length; i++) {
      defineProperty(BaseRegExp, names[i], { __proto__: null, get, set, enumerable: false, configurable: true });
    }
  }

  for (let i = 0; i < 9; i++) define(["$" + (i + 1)], () => (i < groups.length ? groups[i] : ""));
  define(["lastMatch", "$&"], () => cut(input, start, end));
  define(["lastParen", "$+"], () => (groups.length > 0 ? groups[groups.length - 1] : ""));
  define(["leftContext", "$`"], () => cut(input, 0, start));
  define(["rightContext", "$'"], () => cut(input, end));
  define(
    ["input", "$_"],
    () => shown,
    (value) => {
      shown = toText(value);
    },
  );
}

api.keepMatches = keepMatches;
