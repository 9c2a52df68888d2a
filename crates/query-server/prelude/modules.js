// CommonJS modules: texts in the design document.

/** Finds a module: `node` is { value, parent, id }, the place in the design document that names are looked up in. */
function resolve(name, node, root) {
  const names = split(name, "/");
  for (let i = 0; i < names.length; i++) {
    const n = names[i];
    if (n === ".") continue;
    if (n === "..") {
      if (node.parent === undefined) throw failure("invalid_require_path", "Object has no parent " + quote(node.value));
      node = node.parent;
      continue;
    }
    if (i === 0) node = root;
    const value = own(node.value, n);
    if (value === undefined) throw failure("invalid_require_path", 'Object has no property "' + n + '". ' + quote(node.value));
    node = { __proto__: null, value, parent: node, id: node.id === "" ? n : node.id + "/" + n };
  }
  if (typeof node.value !== "string") {
    throw failure("invalid_require_path", "Must require a JavaScript string, not: " + typeof node.value);
  }
  return node;
}

function makeRequire(modules) {
  const root = { __proto__: null, value: modules, parent: undefined, id: "" };
  const loaded = { __proto__: null };

  function requireFrom(place, name) {
    const node = resolve(toText(name), place, root);
    const before = loaded[node.id];
    if (before !== undefined) return before.exports;
    const module = { id: node.id, current: node.value, parent: { id: node.parent.id, current: node.parent.value }, exports: {} };
    // In place before the module runs, so that a cycle sees what is exported so far.
    loaded[node.id] = module;
    try {
      const run = host.evaluate("(function (module, exports, require) { " + node.value + "\n })");
      apply(run, global, [module, module.exports, (id) => requireFrom(node.parent, id)]);
    } catch (e) {
      delete loaded[node.id];
      throw failure("compilation_error", "Module require('" + toText(name) + "') raised error " + describe(e));
    }
    return module.exports;
  }

  return (name) => requireFrom(root, name);
}
