//! The kinds of behaviour in which CouchDB's engine and this project's engine differ.

/// The effect of a difference on a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It works with CouchDB's engine only: here it does not compile, or throws when the place is
    /// reached.
    Fails,
    /// It works here too, with another result.
    Differs,
}

impl Effect {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Fails => "fails",
            Effect::Differs => "differs",
        }
    }
}

/// A kind of difference. There is one static item of each.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name in reports.
    pub id: &'static str,
    /// Its effect on a function.
    pub effect: Effect,
    /// How the two engines behave.
    pub differs: &'static str,
    /// The source to write instead, which behaves alike in both.
    pub instead: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $id:literal, $effect:ident, $differs:literal, $instead:literal;)*) => {
        $(pub(super) static $name: Kind = Kind {
            id: $id,
            effect: Effect::$effect,
            differs: $differs,
            instead: $instead,
        };)*

        /// All kinds that sources show, in the order of the manual.
        pub static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    INSTANCE_OF = "instanceof", Differs,
        "documents come from another global environment in CouchDB, so that their arrays and objects are no instances of a function's Array and Object; here they are",
        "isArray(value) or Array.isArray(value); for objects typeof value === \"object\" && value !== null";
    TIME_ZONE = "time-zone", Differs,
        "CouchDB's dates are in the time zone of its machine; here they are in UTC, or in [functions] time_zone",
        "the UTC methods (getUTCHours, Date.UTC, toISOString), or set [functions] time_zone to the zone of the CouchDB server";
    LOCALE = "locale", Differs,
        "CouchDB's engine follows the named locale and its options; here texts are those of the United States, and collation is that of views, whatever is named",
        "format the text in the function (toFixed, toISOString), or format it in the client";
    REGEXP_STATICS = "regexp-statics", Differs,
        "the parts of the last match exist here only where the source names them as members of RegExp itself",
        "RegExp.$1 as such, or the array that exec and match return";
    ERROR_POSITION = "error-position", Differs,
        "errors have fileName, lineNumber and columnNumber in CouchDB's engine only",
        "e.name and e.message";
    INTL = "intl", Fails,
        "Intl does not exist here",
        "format the text in the function, or in the client";
    STATIC_METHODS = "static-methods", Fails,
        "Array.forEach(list, …), String.trim(text) and others like them exist in old versions of CouchDB's engine only",
        "the method of the value: list.forEach(…), or Array.prototype.forEach.call(list, …)";
    MISSING_METHOD = "missing-method", Fails,
        "the method or member exists in old versions of CouchDB's engine only",
        "a standard method: toISOString or getters for toLocaleFormat, JSON.stringify for quote";
    MISSING_GLOBAL = "missing-global", Fails,
        "the global name exists in old versions of CouchDB's engine only",
        "standard JavaScript: for (… of …) or Object.keys for iterators; JSON for XML";
    FOR_EACH = "for-each", Fails,
        "for each (… in …) is a syntax of old versions of CouchDB's engine",
        "for (var value of list), list.forEach(…), or for (var key in object) with object[key]";
    EXPRESSION_CLOSURE = "expression-closure", Fails,
        "a function body without braces is a syntax of old versions of CouchDB's engine",
        "function (x) { return …; } or x => …";
    LET_BLOCK = "let-block", Fails,
        "let (x = …) with its own block or expression is a syntax of old versions of CouchDB's engine",
        "{ let x = …; … }";
    LEGACY_GENERATOR = "legacy-generator", Fails,
        "yield in a plain function is a syntax of old versions of CouchDB's engine",
        "function* () { yield …; }";
    COMPREHENSION = "comprehension", Fails,
        "array comprehensions and generator expressions are a syntax of old versions of CouchDB's engine",
        "list.filter(…).map(…)";
    CATCH_CONDITION = "catch-condition", Fails,
        "catch (e if …) is a syntax of old versions of CouchDB's engine",
        "catch (e) { if (!…) throw e; … }";
    E4X = "e4x", Fails,
        "XML in JavaScript (E4X) is a syntax of old versions of CouchDB's engine",
        "strings, or a library for XML as a module";
    SHARP_VARIABLE = "sharp-variable", Fails,
        "sharp variables (#1=) are a syntax of old versions of CouchDB's engine",
        "a variable";
    LEGACY_ACCESSOR = "legacy-accessor", Fails,
        "name getter: function and name setter: function are a syntax of old versions of CouchDB's engine",
        "get name() { … } and set name(value) { … }";
}
