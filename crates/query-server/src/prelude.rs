//! The JavaScript that users' functions run in: CouchDB's helpers, modules and design functions.
//!
//! It is text for two engines: QuickJS in the crate `functions`, and Node in this crate.

macro_rules! prelude {
    ($($more:literal)*) => {
        concat!(
            "(function (host) {\n\"use strict\";\n",
            include_str!("../prelude/environment.js"),
            include_str!("../prelude/sources.js"),
            include_str!("../prelude/modules.js"),
            include_str!("../prelude/content_types.js"),
            include_str!("../prelude/render.js"),
            include_str!("../prelude/designs.js"),
            $(include_str!($more),)*
            "return api;\n})\n",
        )
    };
}

/// A script whose value is a function of its host that returns the functions to call. `prelude/environment.js` describes the
/// host, `prelude/designs.js` the returned functions.
///
/// The host is an object of functions: `evaluate(source)`, `log(text)`, and for lists `listStart(json)`, `listChunk(text)`,
/// `listRow()`, which gives the next row's JSON text or null.
pub const PRELUDE: &str = prelude!();

/// [`PRELUDE`] for QuickJS, with functions of SpiderMonkey, CouchDB's engine, that QuickJS lacks. Its
/// host has two more functions. `collate(texts)` compares two texts separated by U+FFFE and returns
/// `-1`, `0` or `1` as text. `readDate(text)` returns the time of a date: a number in UTC, a text in
/// the time zone of dates, null for a text that is not a date. It returns two more functions: after
/// `keepMatches()`, `RegExp` has `$1`, `lastMatch` and so on; after `readDates()`, `Date` reads texts
/// as SpiderMonkey does.
pub const PRELUDE_OF_QUICKJS: &str = prelude!("../prelude/spidermonkey.js" "../prelude/dates.js");

/// A script that defines the global function `index(type, name, value, options)`. It calls `emit` with `[type, name]` and
/// `[value, options.store]`. NaN and the infinities become null.
pub const INDEX_OF_NOUVEAU: &str = include_str!("../prelude/nouveau.js");

/// A script that defines the global function `index(name, value, options)`, which emits the name, and `[value, options]`.
pub const INDEX_OF_CLOUSEAU: &str = include_str!("../prelude/clouseau.js");
