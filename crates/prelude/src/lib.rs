//! The JavaScript that users' functions run in: CouchDB's helpers, modules and design functions.
//!
//! It is text, for whichever engine runs it: the one that is built in (`functions`), and Node (`query-server`).

#![forbid(unsafe_code)]

macro_rules! prelude {
    ($($more:literal)?) => {
        concat!(
            "(function (host) {\n\"use strict\";\n",
            include_str!("../js/environment.js"),
            include_str!("../js/sources.js"),
            include_str!("../js/modules.js"),
            include_str!("../js/content_types.js"),
            include_str!("../js/render.js"),
            include_str!("../js/designs.js"),
            $(include_str!($more),)?
            "return api;\n})\n",
        )
    };
}

/// A script whose value is a function of its host, giving the functions to call; `js/environment.js` says what it may
/// rely upon, `js/designs.js` what it gives.
///
/// The host is an object of functions: `evaluate(source)`, `log(text)`, and for lists `listStart(json)`, `listChunk(text)`,
/// `listRow()`, which gives the next row's JSON text or null.
pub const PRELUDE: &str = prelude!();

/// [`PRELUDE`] for QuickJS: with the features that SpiderMonkey, CouchDB's engine, has and QuickJS lacks. Its host
/// has one function more, `collate(texts)`, which compares two texts that U+FFFE separates, and returns
/// `-1`, `0` or `1` as text. Its value has one function more, `keepMatches()`: from then on, `RegExp`
/// has `$1`, `lastMatch` and so on.
pub const PRELUDE_OF_QUICKJS: &str = prelude!("../js/spidermonkey.js");

/// A script that makes `index(type, name, value, options)` a global function, beside `emit`, which it calls with `[type, name]`
/// and `[value, options.store]`. A number that is none is its name there.
pub const INDEX_OF_NOUVEAU: &str = include_str!("../js/nouveau.js");

/// The same of `index(name, value, options)`, whose calls emit the name, and `[value, options]`.
pub const INDEX_OF_CLOUSEAU: &str = include_str!("../js/clouseau.js");
