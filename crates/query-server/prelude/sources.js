// From a function's source to the function. CouchDB takes a statement that is an anonymous function for an expression.

const NEWLINE = 10;
const SLASH = 47;
const STAR = 42;

function isSpace(c) {
  return c === 32 || (c >= 9 && c <= 13) || c === 0xa0 || c === 0xfeff || c === 0x2028 || c === 0x2029;
}

function isWord(c) {
  return (c >= 48 && c <= 57) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122) || c === 95 || c === 36 || c >= 0x80;
}

/** Where the comment or white space at `i` ends. */
function skipTrivia(source, i) {
  for (;;) {
    const c = codeAt(source, i);
    if (isSpace(c)) {
      i++;
    } else if (c === SLASH && codeAt(source, i + 1) === SLASH) {
      while (i < source.length && codeAt(source, i) !== NEWLINE) i++;
    } else if (c === SLASH && codeAt(source, i + 1) === STAR) {
      const end = find(source, "*/", i + 2);
      i = end < 0 ? source.length : end + 2;
    } else {
      return i;
    }
  }
}

function wordAt(source, i) {
  let end = i;
  while (end < source.length && isWord(codeAt(source, end))) end++;
  return cut(source, i, end);
}

/** Whether an anonymous `function` begins at `i`; CouchDB takes such a statement for an expression. */
function isAnonymousAt(source, i) {
  if (wordAt(source, i) === "async") i = skipTrivia(source, i + 5);
  if (wordAt(source, i) !== "function") return false;
  i = skipTrivia(source, i + 8);
  if (codeAt(source, i) === STAR) i = skipTrivia(source, i + 1);
  return source[i] === "(";
}

/** Where the string or regular expression at `i` ends. */
function skipQuoted(source, i) {
  const quoteMark = codeAt(source, i);
  let inClass = false;
  for (i++; i < source.length; i++) {
    const c = codeAt(source, i);
    if (c === 92) i++;
    else if (quoteMark === SLASH && c === 91) inClass = true;
    else if (quoteMark === SLASH && c === 93) inClass = false;
    else if (c === quoteMark && !inClass) return i + 1;
  }
  return i;
}

// Words after which a slash begins a regular expression.
const BEFORE_OPERAND = { __proto__: null, return: 1, typeof: 1, case: 1, in: 1, of: 1, delete: 1, void: 1, throw: 1, new: 1, else: 1, do: 1 };

/** Start and end of the last anonymous function among the statements of a script, or undefined. */
function lastAnonymous(source) {
  let found;
  let open = -1; // where the anonymous function that is being passed began
  let depth = 0;
  let atStatement = true;
  let operandBefore = false;
  const templates = []; // depths at which a `${` was opened
  for (let i = skipTrivia(source, 0); i < source.length; i = skipTrivia(source, i)) {
    const c = source[i];
    if (isWord(codeAt(source, i))) {
      if (depth === 0 && atStatement && isAnonymousAt(source, i)) open = i;
      const word = wordAt(source, i);
      operandBefore = BEFORE_OPERAND[word] === undefined;
      atStatement = false;
      i += word.length;
      continue;
    }
    const closesTemplate = c === "}" && templates.length > 0 && templates[templates.length - 1] === depth;
    if (c === "`" || closesTemplate) {
      if (closesTemplate) templates.length--;
      for (i++; i < source.length && source[i] !== "`" && !(source[i] === "$" && source[i + 1] === "{"); i++) {
        if (source[i] === "\\") i++;
      }
      if (source[i] === "$") {
        push(templates, depth);
        i++;
      }
      i++;
      operandBefore = source[i - 1] === "`";
      atStatement = false;
      continue;
    }
    if (c === "'" || c === '"' || (c === "/" && !operandBefore)) {
      i = skipQuoted(source, i);
      operandBefore = true;
      atStatement = false;
      continue;
    }
    if (c === "(" || c === "[" || c === "{") depth++;
    if (c === ")" || c === "]" || c === "}") depth--;
    i++;
    operandBefore = c === ")" || c === "]";
    atStatement = c === ";" || c === "}";
    if (depth === 0 && c === "}" && open >= 0) {
      found = { __proto__: null, start: open, end: i };
      open = -1;
    }
  }
  return found;
}

/** The script whose value is the function that `source` means. */
function scriptOf(source) {
  const start = skipTrivia(source, 0);
  if (!isAnonymousAt(source, start)) return source;
  let end = source.length;
  while (end > start && (isSpace(codeAt(source, end - 1)) || source[end - 1] === ";")) end--;
  return "(" + cut(source, 0, end) + "\n)";
}

function isFunction(value) {
  return typeof value === "function";
}

/** Functions of sources that compile only when their statements are rearranged. */
const rearranged = new WeakMap();

/** Whether a function's source is one expression, so that its text alone says what the function is. */
function isVerbatim(fun) {
  return !weakHas(rearranged, fun);
}

function evaluateFunction(source) {
  let first;
  try {
    return host.evaluate(scriptOf(source));
  } catch (e) {
    first = e;
  }
  // Statements before or after an anonymous function, as inlined libraries leave them.
  const span = get(first, "name") === "SyntaxError" ? lastAnonymous(source) : undefined;
  if (span === undefined) throw first;
  try {
    const fun = cut(source, span.start, span.end);
    const made = host.evaluate(cut(source, 0, span.start) + "\n;(" + fun + "\n);\n" + cut(source, span.end));
    if (isFunction(made)) weakSet(rearranged, made, true);
    return made;
  } catch (e) {
    throw get(e, "name") === "SyntaxError" ? first : e;
  }
}

/** The `require` of everything that is compiled with these modules. */
const requires = new WeakMap();

function requireOf(modules) {
  let require = weakGet(requires, modules);
  if (require === undefined) {
    require = makeRequire(modules);
    weakSet(requires, modules, require);
  }
  return require;
}

function compile(source, modules) {
  if (typeof source !== "string") throw failure("compilation_error", "Expression does not eval to a function. (" + quote(source) + ")");
  if (source === "") throw failure("not_found", "missing function");
  if (isObject(modules)) install("require", requireOf(modules));
  let fun;
  try {
    fun = evaluateFunction(source);
  } catch (e) {
    throw failure("compilation_error", describe(e) + " (" + source + ")");
  }
  if (!isFunction(fun)) throw failure("compilation_error", "Expression does not eval to a function. (" + source + ")");
  return fun;
}
