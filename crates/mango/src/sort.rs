//! The `sort` option, which is also the form of an index's fields.

use serde_json::{Map, Value, json};

use crate::error::FindError;

/// Fields with a common direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// Names as written, with `asc` or `desc`.
    pub fields: Vec<(String, Direction)>,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `asc`
    Ascending,
    /// `desc`
    Descending,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Ascending => "asc",
            Direction::Descending => "desc",
        }
    }

    fn of(name: &str) -> Option<Direction> {
        match name {
            "asc" => Some(Direction::Ascending),
            "desc" => Some(Direction::Descending),
            _ => None,
        }
    }
}

impl Sort {
    /// Parses `["a", {"b": "desc"}]`.
    ///
    /// # Errors
    /// [`FindError::InvalidSort`], [`FindError::InvalidSortField`], [`FindError::MixedSort`].
    pub fn parse(value: &Value) -> Result<Sort, FindError> {
        let Value::Array(all) = value else {
            return Err(FindError::InvalidSort(value.clone()));
        };
        let mut fields: Vec<(String, Direction)> = Vec::with_capacity(all.len());
        for field in all {
            let read = match field {
                Value::String(name) => Some((name, Direction::Ascending)),
                Value::Object(members) if members.len() == 1 => {
                    let member = members.iter().next();
                    member.and_then(|(name, d)| Some((name, Direction::of(d.as_str()?)?)))
                }
                _ => None,
            };
            let Some((name, direction)) = read.filter(|(name, _)| !name.is_empty()) else {
                return Err(FindError::InvalidSortField(field.clone()));
            };
            fields.push((name.clone(), direction));
        }
        let sort = Sort { fields };
        match sort.fields.iter().any(|(_, d)| *d != sort.direction()) {
            true => Err(FindError::MixedSort),
            false => Ok(sort),
        }
    }

    /// Returns the direction of all fields.
    pub fn direction(&self) -> Direction {
        self.fields
            .first()
            .map_or(Direction::Ascending, |(_, d)| *d)
    }

    /// Returns the fields' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// Returns `[{"a": "asc"}]`.
    pub fn to_list(&self) -> Value {
        let fields = self.fields.iter();
        Value::Array(
            fields
                .map(|(name, d)| json!({ name.as_str(): d.name() }))
                .collect(),
        )
    }

    /// Returns `{"a": "asc"}`.
    pub fn to_object(&self) -> Value {
        let fields = self.fields.iter();
        let members: Map<String, Value> = fields
            .map(|(name, d)| (name.clone(), Value::from(d.name())))
            .collect();
        Value::Object(members)
    }

    /// Parses the output of [`Sort::to_object`]; `None` for anything else.
    pub fn from_object(value: &Value) -> Option<Sort> {
        let members = value.as_object()?.iter();
        let fields = members.map(|(name, d)| Some((name.clone(), Direction::of(d.as_str()?)?)));
        Some(Sort {
            fields: fields.collect::<Option<_>>()?,
        })
    }
}
