//! The JavaScript that users' functions run in: CouchDB's helpers, modules and design functions.
//!
//! It is text, for whichever engine runs it: the one that is built in (`functions`), and Node (`query-server`).

/// A script whose value is a function of its host, giving the functions to call; `js/environment.js` says what it may
/// rely upon, `js/designs.js` what it gives.
///
/// The host is an object of functions: `evaluate(source)`, `log(text)`, and for lists `listStart(json)`, `listChunk(text)`,
/// `listRow()`, which gives the next row's JSON text or null.
pub const PRELUDE: &str = concat!(
    "(function (host) {\n\"use strict\";\n",
    include_str!("../prelude/environment.js"),
    include_str!("../prelude/sources.js"),
    include_str!("../prelude/modules.js"),
    include_str!("../prelude/content_types.js"),
    include_str!("../prelude/render.js"),
    include_str!("../prelude/designs.js"),
    "return api;\n})\n",
);

/// A script that makes `index(type, name, value, options)` a global function, beside `emit`, which it calls with `[type, name]`
/// and `[value, options.store]`. A number that is none is its name there.
pub const INDEX_OF_NOUVEAU: &str = include_str!("../prelude/nouveau.js");

/// The same of `index(name, value, options)`, whose calls emit the name, and `[value, options]`.
pub const INDEX_OF_CLOUSEAU: &str = include_str!("../prelude/clouseau.js");
