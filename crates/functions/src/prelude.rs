//! The JavaScript that users' functions run in: CouchDB's helpers, modules and design functions.

/// A script whose value is a function of its host, giving the functions to call; `js/prelude/environment.js` says what it may
/// rely upon, `js/prelude/designs.js` what it gives.
///
/// The host is an object of functions: `evaluate(source)`, `log(text)`, and for lists `listStart(json)`, `listChunk(text)`,
/// `listRow()`, which gives the next row's JSON text or null.
pub const PRELUDE: &str = concat!(
    "(function (host) {\n\"use strict\";\n",
    include_str!("../js/prelude/environment.js"),
    include_str!("../js/prelude/sources.js"),
    include_str!("../js/prelude/modules.js"),
    include_str!("../js/prelude/content_types.js"),
    include_str!("../js/prelude/render.js"),
    include_str!("../js/prelude/designs.js"),
    "return api;\n})\n",
);

/// CouchDB's query server for Node; it reads [`PRELUDE`] from a file `prelude.js` beside it.
pub const NODE_SERVER: &str = include_str!("../js/node-server.js");
