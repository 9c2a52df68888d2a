// What functions of text indexes call. A call is a row of `emit`; what is wrong is thrown as Nouveau throws it.
(function () {
  "use strict";
  const { emit, isFinite, TypeError } = globalThis;

  function check(what, value, types) {
    for (let i = 0; i < types.length; i++) {
      if (typeof value === types[i]) return;
    }
    throw new TypeError(what + " must be a " + types[0] + " not " + typeof value);
  }

  function refuseReserved(name) {
    if (name[0] === "_") throw { name: "ReservedName", message: "name must not start with an underscore" };
  }

  const VALUES = { __proto__: null, string: ["string"], text: ["string"], double: ["number"], stored: ["string", "number"] };

  function index(type, name, value, options) {
    check("type", type, ["string"]);
    check("name", name, ["string"]);
    refuseReserved(name);
    const types = VALUES[type];
    if (types === undefined) throw new TypeError(type + " not supported");
    check("value", value, types);
    const store = options === undefined || options === null ? undefined : options.store;
    const isNone = typeof value === "number" && !isFinite(value);
    emit([type, name], [isNone ? null : value, store]);
  }

  // What views emit is no business of an index.
  const globals = { index: index, emit: function emit() {} };
  for (const name in globals) {
    Object.defineProperty(globalThis, name, { __proto__: null, value: globals[name], writable: true, enumerable: false, configurable: true });
  }
})();
