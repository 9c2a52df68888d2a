//! Projection: which members of `doc` a map function can touch, and writing just those.
//!
//! [`Projection::analyse`] reads a function's source once. If `doc` does not escape, [`Projection::project`] then lifts the
//! members that matter out of each document's text, and the function gives the same rows for that as for the whole document.
//! What is followed and what is not: `docs/src/developers/projection.md`. No function is run here: there is no JavaScript engine.
//!
//! [`Projection::project`] and [`Projection::project_records`] read bytes that are stored, [`Projection::analyse`] and
//! [`Projection::of_group`] what a user wrote; none of them panics or takes long, whatever these are.
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
mod follow;
pub mod fuzz;
mod need;
mod refusal;
mod scan;
mod source;
mod stateless;
#[cfg(test)]
mod tests;
mod usage;

pub use refusal::Refusal;
pub use stateless::{Arguments, LeftBehind};

use document::json::skip;

use need::Need;
pub use scan::WHOLE;
use scan::{Plan, Scan};

/// What a function is known to leave behind for its next call, whatever its arguments are: a global, a change of a built-in
/// object.
///
/// It holds for a function that is compiled as the one expression that its source is, in an environment that nothing else has
/// changed: no module, no other function's compilation or call.
///
/// ```
/// use projection::{Arguments, LeftBehind, left_behind};
///
/// let total = "function (keys, values) { var total = 0; values.forEach(function (v) { total += v.n }); return total }";
/// assert_eq!(left_behind(total, Arguments::Own), LeftBehind::Nothing);
/// let seen = "function (keys, values) { seen = values[0]; return values.length }";
/// assert_eq!(left_behind(seen, Arguments::Own), LeftBehind::ByCalls);
/// ```
pub fn left_behind(source: &str, arguments: Arguments) -> LeftBehind {
    source::left_behind(source, arguments)
}

/// The members of a document that map functions can touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    need: Need,
    /// For the members whose names begin with an underscore, which are kept apart.
    members: Plan,
    body: Plan,
}

impl Projection {
    /// What the map function with this source can touch of its document, or why that is not known.
    ///
    /// It is right for the function alone. Functions that share their global objects with others, or that `require` modules,
    /// are to be given to [`Projection::of_group`].
    pub fn analyse(source: &str) -> Result<Projection, Refusal> {
        source::on_large_stack(source.len(), || source::need_of_map(source))?.map(Projection::new)
    }

    /// One projection for all map functions of a design document, which share one context and one lifted document.
    /// `lib` is the JSON text of `views.lib`. On failure, the index in `maps` of the function that is to blame.
    pub fn of_group<S: AsRef<str>>(
        maps: &[S],
        lib: Option<&str>,
    ) -> Result<Projection, (usize, Refusal)> {
        let mut projections = Vec::with_capacity(maps.len());
        let mut requires = None;
        for (i, map) in maps.iter().enumerate() {
            let source = map.as_ref();
            projections.push(Projection::analyse(source).map_err(|refusal| (i, refusal))?);
            // Every way to call `require` that is not refused has its name in the text, maybe with escapes.
            if source.contains("require") || source.contains("\\u") {
                requires.get_or_insert(i);
            }
        }
        if let (Some(i), Some(lib)) = (requires, lib) {
            source::check_library(lib).map_err(|refusal| (i, refusal))?;
        }
        Ok(Projection::merge(&projections))
    }

    /// What any of the functions can touch.
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

    /// Appends to `out` the document reduced to what the functions can touch, as compact JSON.
    ///
    /// `members` are the document's underscore members without braces, `body` is an object of the others: compact JSON without
    /// duplicate members, checked when it was written. Text that turns out not to be so is copied as it is: any bytes may be
    /// given.
    pub fn project(&self, members: &[u8], body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if self.try_project(members, body, out).is_none() {
            out.truncate(start);
            whole(members, body, out);
        }
    }

    /// The same for the body alone, an object without the members whose names begin with an underscore. Objects and arrays that
    /// are taken whole are marked with a byte before them, [`WHOLE`], so that whoever builds values can tell records, of which the
    /// functions look at about every member that is left, from what they may merely pass on.
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

    /// The paths that are taken, as a JSON array of strings: `["items[].price","tags?","type"]`.
    /// `?` marks a value of which only the kind matters, `[]` every member or element.
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
