//! A search request, and the values by which hits are sorted.

use std::ops::Bound;

use crate::query::Query;
use crate::similarity::Similarity;
use crate::statistics::Statistics;

/// A search request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The query.
    pub query: Query,
    /// Queries that hits must match as well; they do not affect the score.
    pub filters: Vec<Query>,
    /// The scoring model.
    pub similarity: Similarity,
    /// The order of hits; equal hits are ordered by id.
    pub sort: Vec<SortKey>,
    /// The maximum number of hits.
    pub limit: usize,
    /// Returns only hits after this position in the order: the `order` of a hit.
    pub after: Option<Vec<SortValue>>,
    /// The statistics that the previous page was scored with; this page reuses them.
    pub statistics: Statistics,
    /// String fields by whose values hits are counted.
    pub counts: Vec<String>,
    /// Numeric fields by whose ranges hits are counted.
    pub ranges: Vec<(String, Vec<Range>)>,
}

/// One key of a sort order.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// The value to sort by.
    pub by: SortBy,
    /// Sorts the greatest first; for scores, the lowest first.
    pub reversed: bool,
}

/// A value that hits are sorted by.
#[derive(Clone, Debug, PartialEq)]
pub enum SortBy {
    /// The score, best first.
    Score,
    /// The document's id.
    Id,
    /// A field's smallest value.
    Field(String),
    /// A field's greatest string; numbers are ignored.
    Strings(String),
    /// A field's greatest number; 0 when it has none.
    Numbers(String),
    /// The distance of a point.
    Distance(Distance),
}

/// The distance between a document's point and a fixed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// The field of longitudes, in degrees.
    pub lon_field: String,
    /// The field of latitudes, in degrees.
    pub lat_field: String,
    /// The other point's longitude.
    pub lon: f64,
    /// The other point's latitude.
    pub lat: f64,
    /// Radius of the earth, in the unit of distances.
    pub radius: f64,
}

impl Distance {
    /// Computes the distance on a sphere by the haversine formula, as Spatial4j does.
    pub(crate) fn to(&self, lon: f64, lat: f64) -> f64 {
        let (lat1, lat2) = (self.lat.to_radians(), lat.to_radians());
        let by_lat = ((lat2 - lat1) / 2.0).sin();
        let by_lon = ((lon - self.lon).to_radians() / 2.0).sin();
        let h = by_lat * by_lat + lat1.cos() * lat2.cos() * by_lon * by_lon;
        2.0 * h.sqrt().min(1.0).asin() * self.radius
    }

    /// Returns the distance of a document without a point.
    pub(crate) fn farthest(&self) -> f64 {
        std::f64::consts::PI * self.radius
    }
}

/// The value of a sort key.
#[derive(Clone, Debug, PartialEq)]
pub enum SortValue {
    /// No value.
    Null,
    /// A score.
    Score(f32),
    /// A number.
    Number(f64),
    /// A string, or the id.
    Text(String),
}

/// A named range of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// Its name in the answer.
    pub label: String,
    /// The lower bound.
    pub low: Bound<f64>,
    /// The upper bound.
    pub high: Bound<f64>,
}
