//! Filters of feeds, besides those of the database crate: selectors and users' functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use database::counters::FILTER_LEFT_OUT;
use database::{BatchFilter, DesignDoc, Filter};
use document::DocId;
use functions::{Admission, Error as FunctionError, Lane, Languages, Place, Share};
use parking_lot::Mutex;
use serde_json::Value;

use crate::access::Access;
use crate::design::require_function;
use crate::error::{Error, Result, bad};
use crate::query::Query;

/// A filter of matching documents; `fields` selects the members that are shown.
pub fn selector_filter(
    selector: std::result::Result<mango::Selector, mango::SelectorError>,
    fields: Option<&Value>,
) -> Result<Filter> {
    let selector = selector.map_err(|e| Error::BadRequest(e.to_string()))?;
    let fields = match fields {
        None => None,
        Some(f) => Some(mango::Fields::parse(f).map_err(|e| Error::BadRequest(e.to_string()))?),
    };
    Ok(Filter::of_selector(selector, fields))
}

/// A filter that needs nothing of the request's body.
pub enum NamedFilter<'q> {
    /// `_design`
    Design,
    /// `_view`, or a design document's function.
    Function(FunctionPath<'q>),
}

/// A function that filters.
pub struct FunctionPath<'q> {
    /// `_design/…`
    pub design: DocId,
    path: Vec<&'q str>,
    /// Whether it gets the request.
    takes_request: bool,
}

impl<'q> NamedFilter<'q> {
    /// Parses the parameter `filter`; `q` has those of the filter.
    ///
    /// # Errors
    /// [`Error::BadRequest`]
    pub fn parse(q: &'q Query, name: &'q str) -> Result<NamedFilter<'q>> {
        let (design, path, takes_request) = match name {
            "_design" => return Ok(NamedFilter::Design),
            "_view" => {
                let view = q
                    .get("view")
                    .ok_or_else(|| bad("`view` filter parameter is not provided."))?;
                let [ddoc, view] = words(view)[..] else {
                    return Err(bad("`view` must be of the form `designname/viewname`"));
                };
                (ddoc, vec!["views", view, "map"], false)
            }
            name if name.starts_with('_') => return Err(bad("unknown builtin filter name")),
            name => match words(name)[..] {
                [ddoc, name] => (ddoc, vec!["filters", name], true),
                _ => return Err(bad("`filter` must be of the form `designname/filtername`")),
            },
        };
        let design = DocId::new(&format!("_design/{design}")).map_err(|_| Error::Missing)?;
        Ok(NamedFilter::Function(FunctionPath {
            design,
            path,
            takes_request,
        }))
    }
}

impl FunctionPath<'_> {
    /// Returns the filter. `ddoc` is the design document, `request` returns what a filter function
    /// gets.
    ///
    /// # Errors
    /// Those of [`FunctionPath::require`], and errors of `request`.
    pub fn open(
        &self,
        access: &Access,
        ddoc: Option<Arc<DesignDoc>>,
        request: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Filter> {
        // First: the request may be long.
        let ddoc = self.require(ddoc)?;
        let request = match self.takes_request {
            true => Some(request()?),
            false => None,
        };
        Ok(self.filter(access, ddoc, request))
    }

    /// Returns the design document, which has the function.
    ///
    /// # Errors
    /// [`Error::Missing`] without the design document, [`Error::MissingKey`] without the function.
    pub fn require(&self, ddoc: Option<Arc<DesignDoc>>) -> Result<Arc<DesignDoc>> {
        let ddoc = ddoc.ok_or(Error::Missing)?;
        require_function(&ddoc, &self.path)?;
        Ok(ddoc)
    }

    /// Whether the function gets the request.
    pub fn takes_request(&self) -> bool {
        self.takes_request
    }

    /// Returns the filter by a function that `ddoc` has. `request` is the JSON text of the request
    /// for a function that takes it.
    pub fn filter(
        &self,
        access: &Access,
        ddoc: Arc<DesignDoc>,
        request: Option<Vec<u8>>,
    ) -> Filter {
        Filter::Batch(Arc::new(FunctionFilter {
            languages: access.db.languages().clone(),
            share: access.db.share(),
            ddoc,
            path: self.path.iter().map(|part| (*part).to_owned()).collect(),
            request,
            left_out: Mutex::default(),
        }))
    }
}

/// Splits the name of a function into its words, without the empty ones.
fn words(name: &str) -> Vec<&str> {
    name.split('/').filter(|word| !word.is_empty()).collect()
}

/// A function of a design document: a filter, or a view whose map emits something.
struct FunctionFilter {
    languages: Arc<dyn Languages>,
    share: Share,
    ddoc: Arc<DesignDoc>,
    path: Vec<String>,
    /// JSON text of the function's request argument.
    request: Option<Vec<u8>>,
    /// When it was logged last that documents are left out, and how many were since.
    left_out: Mutex<(Option<Instant>, u64)>,
}

/// A document that a function is called with to find out whether it fails for any.
const NO_DOCUMENT: &[u8] = br#"{"_id":"","_rev":"1-0"}"#;

/// Minimum time between two log lines of a feed about documents that are left out.
const LOG_EVERY: Duration = Duration::from_secs(60);

impl BatchFilter for FunctionFilter {
    fn admission(&self) -> Admission {
        self.languages.admission(Lane::Calls, &self.share)
    }

    /// A document that cannot be passed to the function does not pass the filter: one document must not end a feed for all
    /// others.
    fn matches(
        &self,
        place: &Place,
        docs: &[Vec<u8>],
    ) -> std::result::Result<Vec<bool>, database::Error> {
        match (self.call(place, docs), docs) {
            (Err(error), [doc]) if error.is_of_document() => {
                match self.call(place, &[NO_DOCUMENT.to_vec()]) {
                    // It may miss members.
                    Ok(_)
                    | Err(
                        FunctionError::Thrown { .. }
                        | FunctionError::Forbidden(_)
                        | FunctionError::Unauthorized(_),
                    ) => {}
                    Err(of_all) => return Err(of_all.into()),
                }
                self.log_left_out(doc, &error);
                Ok(vec![false])
            }
            (Err(error), docs) if error.is_of_document() && docs.len() > 1 => {
                let (first, second) = docs.split_at(docs.len() / 2);
                let mut passed = self.matches(place, first)?;
                passed.extend(self.matches(place, second)?);
                Ok(passed)
            }
            (passed, _) => Ok(passed?),
        }
    }
}

impl FunctionFilter {
    fn call(
        &self,
        place: &Place,
        docs: &[Vec<u8>],
    ) -> std::result::Result<Vec<bool>, FunctionError> {
        let mut args = b"[[".to_vec();
        for (i, doc) in docs.iter().enumerate() {
            if i > 0 {
                args.push(b',');
            }
            args.extend_from_slice(doc);
        }
        args.push(b']');
        if let Some(request) = &self.request {
            args.push(b',');
            args.extend_from_slice(request);
        }
        args.push(b']');
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let mut designs = self.languages.designs(place, &self.ddoc.language)?;
        let reply = designs.call(&self.ddoc, &path, &args)?;
        match serde_json::from_slice::<(bool, Vec<bool>)>(&reply) {
            Ok((true, passed)) if passed.len() == docs.len() => Ok(passed),
            _ => Err(FunctionError::Process(
                "the filter's server gave no answer for each document".to_owned(),
            )),
        }
    }

    fn log_left_out(&self, doc: &[u8], error: &FunctionError) {
        FILTER_LEFT_OUT.count();
        let mut left_out = self.left_out.lock();
        left_out.1 += 1;
        if left_out.0.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return;
        }
        let (_, count) = std::mem::replace(&mut *left_out, (Some(Instant::now()), 0));
        let id = document::json::members(doc).find(|(name, _)| name == "_id");
        let id = id.map(|(_, id)| String::from_utf8_lossy(id).into_owned());
        tracing::warn!(
            db = %self.share.database(),
            design = %self.ddoc.id,
            function = self.path.join("/"),
            id = id.unwrap_or_default(),
            count,
            %error,
            "a filter leaves documents out: the last one is named"
        );
    }
}
