// What functions of text indexes like Clouseau's call. A call is a row of `emit`; what is wrong is thrown as CouchDB throws it.
(function () {
  "use strict";
  const { emit, isFinite } = globalThis;

  function refuse(name, message) {
    throw { name: name, message: message };
  }

  function index(name, value, options) {
    if (typeof name !== "string") refuse("TypeError", "name must be a string not " + typeof name);
    if (name[0] === "_") refuse("ReservedName", "name must not start with an underscore");
    if (typeof value !== "string" && typeof value !== "boolean" && !(typeof value === "number" && isFinite(value))) {
      refuse("TypeError", "value must be a string, a number or boolean not " + typeof value);
    }
    if (options && typeof options !== "object") refuse("TypeError", "options must be an object not " + typeof options);
    emit(name, [value, options || {}]);
  }

  // What views emit is no business of an index.
  const globals = { index: index, emit: function emit() {} };
  for (const name in globals) {
    Object.defineProperty(globalThis, name, { __proto__: null, value: globals[name], writable: true, enumerable: false, configurable: true });
  }
})();
