//! Facts about the functions of the language.

/// The kind of a value; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A number or a big integer: as a member's name, it names no method.
    Number,
    /// No object.
    Primitive,
    /// An object that this call has created and that is not callable.
    Own,
    /// Anything, a built-in object too.
    Any,
}

/// The requirement for a function to be harmless.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Its object is changed.
    OwnObject,
    /// It calls its first argument.
    Callback,
    /// Its object is changed, and it calls its first argument if there is one.
    OwnObjectAndComparison,
    /// It may call its arguments, or their methods.
    NoCallable,
    /// It may call all but its first argument.
    NoCallableButFirst,
    /// It calls its second argument for what it creates.
    One,
    /// Its first argument is changed.
    OwnArgument,
}

use Needs::{Callback, NoCallable, Nothing, OwnObject, OwnObjectAndComparison};

/// Names, what the function needs, and what it gives.
type Table = [(&'static str, Needs, Kind)];

/// Methods of built-in objects. No object of the engine has a method of such a name that does more.
const METHODS: &Table = &[
    ("slice concat exec flat", Nothing, Kind::Own),
    ("split match", NoCallable, Kind::Own),
    // `x.search(RegExp.prototype)` sets a member of the prototype.
    ("search", NoCallable, Kind::Number),
    (
        "indexOf lastIndexOf charCodeAt localeCompare",
        Nothing,
        Kind::Number,
    ),
    (
        "getTime getDate getDay getFullYear getHours getMilliseconds",
        Nothing,
        Kind::Number,
    ),
    (
        "getMinutes getMonth getSeconds getTimezoneOffset getYear",
        Nothing,
        Kind::Number,
    ),
    (
        "getUTCDate getUTCDay getUTCFullYear getUTCHours",
        Nothing,
        Kind::Number,
    ),
    (
        "getUTCMilliseconds getUTCMinutes getUTCMonth getUTCSeconds",
        Nothing,
        Kind::Number,
    ),
    (
        "includes join charAt codePointAt substring substr",
        Nothing,
        Kind::Primitive,
    ),
    (
        "toLowerCase toUpperCase trim trimStart trimEnd trimLeft",
        Nothing,
        Kind::Primitive,
    ),
    (
        "trimRight startsWith endsWith padStart padEnd repeat",
        Nothing,
        Kind::Primitive,
    ),
    (
        "normalize test toString toFixed toPrecision toExponential",
        Nothing,
        Kind::Primitive,
    ),
    (
        "toISOString toJSON toDateString toUTCString",
        Nothing,
        Kind::Primitive,
    ),
    (
        "hasOwnProperty propertyIsEnumerable has",
        Nothing,
        Kind::Primitive,
    ),
    ("valueOf at get", Nothing, Kind::Any),
    ("replace replaceAll", NoCallable, Kind::Primitive),
    ("forEach some every", Callback, Kind::Primitive),
    ("findIndex findLastIndex", Callback, Kind::Number),
    ("map filter flatMap", Callback, Kind::Own),
    ("find findLast reduce reduceRight", Callback, Kind::Any),
    ("sort", OwnObjectAndComparison, Kind::Own),
    ("push unshift", OwnObject, Kind::Number),
    ("pop shift", OwnObject, Kind::Any),
    ("splice reverse fill set add", OwnObject, Kind::Own),
    ("delete clear", OwnObject, Kind::Primitive),
    (
        "setDate setFullYear setHours setMilliseconds setMinutes",
        OwnObject,
        Kind::Number,
    ),
    (
        "setMonth setSeconds setTime setUTCDate setUTCFullYear",
        OwnObject,
        Kind::Number,
    ),
    (
        "setUTCHours setUTCMilliseconds setUTCMinutes",
        OwnObject,
        Kind::Number,
    ),
    ("setUTCMonth setUTCSeconds", OwnObject, Kind::Number),
];

/// Names that the language itself looks up in order to call what it finds, and names that lead to
/// functions.
const RESERVED: &str = "constructor then call apply bind next return __proto__";

/// Global functions that may be called with anything.
const GLOBALS: &Table = &[
    ("parseInt parseFloat Number", Nothing, Kind::Number),
    (
        "emit index log sum isArray isNaN isFinite",
        Nothing,
        Kind::Primitive,
    ),
    (
        "String Boolean Date escape unescape",
        Nothing,
        Kind::Primitive,
    ),
    (
        "encodeURIComponent decodeURIComponent",
        Nothing,
        Kind::Primitive,
    ),
    ("encodeURI decodeURI", Nothing, Kind::Primitive),
];

/// Functions of global objects.
const MATH: &Table = &[
    (
        "abs ceil floor round trunc sign min max pow sqrt cbrt",
        Nothing,
        Kind::Number,
    ),
    (
        "log log2 log10 log1p exp expm1 sin cos tan asin acos",
        Nothing,
        Kind::Number,
    ),
    ("atan atan2 hypot random fround", Nothing, Kind::Number),
];
const DATE: &Table = &[("parse UTC now", Nothing, Kind::Number)];
const NUMBER: &Table = &[
    ("parseInt parseFloat", Nothing, Kind::Number),
    (
        "isInteger isSafeInteger isNaN isFinite",
        Nothing,
        Kind::Primitive,
    ),
];
const STRING: &Table = &[("fromCharCode fromCodePoint", Nothing, Kind::Primitive)];
const JSON: &Table = &[
    ("stringify", Needs::NoCallableButFirst, Kind::Primitive),
    ("parse", Needs::One, Kind::Own),
];
const ARRAY: &Table = &[
    ("isArray", Nothing, Kind::Primitive),
    ("from", Needs::NoCallableButFirst, Kind::Own),
];
const OBJECT: &Table = &[
    ("keys values entries", Nothing, Kind::Own),
    ("assign", Needs::OwnArgument, Kind::Own),
];

fn find(table: &Table, name: &str) -> Option<(Needs, Kind)> {
    let mut lines = table.iter();
    let line = lines.find(|(names, ..)| names.split(' ').any(|known| known == name));
    line.map(|(_, needs, gives)| (*needs, *gives))
}

/// Returns a method's requirement and result.
pub(super) fn method(name: &str) -> Option<(Needs, Kind)> {
    find(METHODS, name)
}

/// Returns whether no callable may be a member of this name.
pub(super) fn is_reserved(name: &str) -> bool {
    method(name).is_some() || RESERVED.split(' ').any(|known| known == name)
}

/// Returns the result of a global function that may be called with anything.
pub(super) fn global_function(name: &str) -> Option<Kind> {
    find(GLOBALS, name).map(|(_, gives)| gives)
}

/// Returns the requirement and result of `object.name(…)` for a global object.
pub(super) fn static_function(object: &str, name: &str) -> Option<(Needs, Kind)> {
    let table = match object {
        "Math" => MATH,
        "Date" => DATE,
        "Number" => NUMBER,
        "String" => STRING,
        "JSON" => JSON,
        "Array" => ARRAY,
        "Object" => OBJECT,
        _ => return None,
    };
    find(table, name)
}

/// Global constructors that make an object of their own, whatever their arguments are.
pub(super) fn is_constructor(name: &str) -> bool {
    const NAMES: &str = "Array Date RegExp Map Set Error TypeError RangeError";
    NAMES.split(' ').any(|known| known == name)
}
