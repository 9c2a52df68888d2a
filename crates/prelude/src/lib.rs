//! The JavaScript environment of users' functions: CouchDB's helpers, modules and design functions.
//!
//! It is text, for any engine: the built-in one (`functions`), and Node.js (`query-server`).

#![forbid(unsafe_code)]

/// A script whose value is a function of its host that returns the functions to call;
/// `js/environment.js` defines what it may rely on, `js/designs.js` what it returns.
///
/// The host is an object of functions: `evaluate(source)`, `log(text)`, and for lists
/// `listStart(json)`, `listChunk(text)`, `listRow()`, which returns the next row's JSON text or
/// null.
pub const PRELUDE: &str = concat!(
    "(function (host) {\n\"use strict\";\n",
    include_str!("../js/environment.js"),
    include_str!("../js/sources.js"),
    include_str!("../js/modules.js"),
    include_str!("../js/content_types.js"),
    include_str!("../js/render.js"),
    include_str!("../js/designs.js"),
    "return api;\n})\n",
);

/// A script that defines the global function `index(type, name, value, options)`, in addition to
/// `emit`, which it calls with `[type, name]` and `[value, options.store]`. A number that JSON does
/// not have is represented by its name.
pub const INDEX_OF_NOUVEAU: &str = include_str!("../js/nouveau.js");

/// As above for `index(name, value, options)`, whose calls emit the name, and `[value, options]`.
pub const INDEX_OF_CLOUSEAU: &str = include_str!("../js/clouseau.js");
