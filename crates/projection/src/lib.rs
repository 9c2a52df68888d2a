//! Projection: determines the members of `doc` that a map function can access, and writes only
//! those.
//!
//! [`Projection::analyse`] reads a function's source once. If `doc` does not escape,
//! [`Projection::project`] then extracts the relevant members from each document's text, and the
//! function emits the same rows for that as for the whole document.
//! `docs/src/developers/projection.md` lists what is followed and what is not. No function is run
//! here: there is no JavaScript engine.
//!
//! [`Projection::project`] and [`Projection::project_records`] read stored bytes,
//! [`Projection::analyse`] and [`Projection::of_group`] users' text; none of them panics or is
//! slow, whatever the input.
//!
//! ```
//! use projection::Projection;
//!
//! let map = "function (doc) { if (doc.type === 'order') doc.items.forEach(function (i) { emit(i.sku, doc._id) }) }";
//! let projection = Projection::of_group(&[map], None).unwrap();
//! let mut out = Vec::new();
//! let body = br#"{"type":"order","note":"long","items":[{"sku":"a","price":1},{"sku":"b"}]}"#;
//! projection.project(br#""_id":"o1","_rev":"1-x""#, body, &mut out);
//! assert_eq!(out, br#"{"_id":"o1","type":"order","items":[{"sku":"a"},{"sku":"b"}]}"#);
//! ```

#![forbid(unsafe_code)]

mod builtins;
mod differences;
mod follow;
pub mod fuzz;
mod need;
mod refusal;
mod required;
mod scan;
mod source;
mod stateless;
#[cfg(test)]
mod tests;
mod usage;

pub use differences::{
    DesignFunction, Difference, Effect, Form, KINDS, Kind, design_functions, differences,
};
pub use refusal::Refusal;
pub use required::required;
pub use stateless::{Arguments, LastingEffect};

use document::json::skip;

use need::Need;
pub use scan::WHOLE;
use scan::{Plan, Scan};

/// Returns what a function may leave behind for its next call, whatever its arguments are: a
/// global, a change of a built-in object.
///
/// It holds for a function that is compiled as the single expression of its source, in an
/// environment that nothing else has changed: no module, no other function's compilation or call.
///
/// ```
/// use projection::{Arguments, LastingEffect, lasting_effect};
///
/// let total = "function (keys, values) { var total = 0; values.forEach(function (v) { total += v.n }); return total }";
/// assert_eq!(lasting_effect(total, Arguments::Own), LastingEffect::Nothing);
/// let seen = "function (keys, values) { seen = values[0]; return values.length }";
/// assert_eq!(lasting_effect(seen, Arguments::Own), LastingEffect::ByCalls);
/// ```
pub fn lasting_effect(source: &str, arguments: Arguments) -> LastingEffect {
    source::lasting_effect(source, arguments)
}

/// The members of a document that map functions can touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    need: Need,
    /// For the members whose names start with an underscore, which are stored separately.
    members: Plan,
    body: Plan,
}

impl Projection {
    /// Analyses the map function with this source: the members of its document that it can access,
    /// or why that is unknown.
    ///
    /// It is valid for the function alone. Functions that share their global objects with others,
    /// or that `require` modules, must use [`Projection::of_group`].
    pub fn analyse(source: &str) -> Result<Projection, Refusal> {
        source::on_large_stack(source.len(), || source::need_of_map(source))?.map(Projection::new)
    }

    /// One projection for all map functions of a design document, which share one context and one
    /// lifted document. `lib` is the JSON text of `views.lib`. On failure, the index in `maps` of
    /// the function that is to blame.
    pub fn of_group<S: AsRef<str>>(
        maps: &[S],
        lib: Option<&str>,
    ) -> Result<Projection, (usize, Refusal)> {
        let mut projections = Vec::with_capacity(maps.len());
        let mut requires = None;
        for (i, map) in maps.iter().enumerate() {
            let source = map.as_ref();
            projections.push(Projection::analyse(source).map_err(|refusal| (i, refusal))?);
            // Every way to call `require` that is not refused has its name in the text, maybe with
            // escapes.
            if source.contains("require") || source.contains("\\u") {
                requires.get_or_insert(i);
            }
        }
        if let (Some(i), Some(lib)) = (requires, lib) {
            source::check_library(lib).map_err(|refusal| (i, refusal))?;
        }
        Ok(Projection::merge(&projections))
    }

    /// Merges the members that any of the functions can access.
    pub fn merge(projections: &[Projection]) -> Projection {
        let mut need = Need::default();
        for projection in projections {
            need.merge(&projection.need);
        }
        Projection::new(need)
    }

    fn new(need: Need) -> Projection {
        let (members, body) = Plan::new(&need).split();
        Projection {
            need,
            members,
            body,
        }
    }

    /// Appends the document reduced to the members that the functions can access to `out`, as
    /// compact JSON.
    ///
    /// `members` are the document's underscore members without braces, `body` is an object of the
    /// others: compact JSON without duplicate members, checked when it was written. Other text is
    /// copied unchanged: any bytes are allowed.
    pub fn project(&self, members: &[u8], body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if self.try_project(members, body, out).is_none() {
            out.truncate(start);
            whole(members, body, out);
        }
    }

    /// Projects the body alone, an object without the members whose names start with an underscore.
    /// Objects and arrays that are taken whole are marked with a byte before them, [`WHOLE`], so
    /// that the engine can distinguish records, of which the functions access nearly every
    /// remaining member, from values that they may merely pass on.
    pub fn project_records(&self, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.push(b'{');
        let done = match body.first() {
            Some(b'{') if !self.body.is_empty() => {
                let mut scan = Scan {
                    text: body,
                    out,
                    marked: true,
                };
                scan.members(&self.body, 1, Some(b'}'), true).map(drop)
            }
            Some(b'{') => Some(()),
            _ => None,
        };
        match done {
            Some(()) => out.push(b'}'),
            None => {
                out.truncate(start);
                out.extend_from_slice(body);
            }
        }
    }

    fn try_project(&self, members: &[u8], body: &[u8], out: &mut Vec<u8>) -> Option<()> {
        out.push(b'{');
        let start = out.len();
        if !self.members.is_empty() {
            let mut scan = Scan {
                text: members,
                out,
                marked: false,
            };
            scan.members(&self.members, 0, None, true)?;
        }
        if !self.body.is_empty() {
            if *body.first()? != b'{' {
                return None;
            }
            let comma = out.len();
            if comma > start {
                out.push(b',');
            }
            let first = out.len();
            let mut scan = Scan {
                text: body,
                out,
                marked: false,
            };
            scan.members(&self.body, 1, Some(b'}'), true)?;
            if out.len() == first {
                out.truncate(comma);
            }
        }
        out.push(b'}');
        Some(())
    }

    /// Returns the paths that are taken, as a JSON array of strings:
    /// `["items[].price","tags?","type"]`. `?` marks a value of which only the kind matters, `[]`
    /// every member or element.
    pub fn describe(&self) -> String {
        serde_json::Value::from(self.need.paths()).to_string()
    }
}

/// Writes the whole document.
fn whole(members: &[u8], body: &[u8], out: &mut Vec<u8>) {
    let rest = body.strip_prefix(b"{").unwrap_or(body);
    out.push(b'{');
    out.extend_from_slice(members);
    if !members.is_empty() && rest.trim_ascii_start() != b"}" {
        out.push(b',');
    }
    out.extend_from_slice(rest);
}
