//! `"aggregate"`: groups of documents, and values computed from them.
//!
//! ```json
//! {"selector": {"type": "order"},
//!  "aggregate": {"group_by": ["country"], "compute": {"orders": {"$count": true}, "revenue": {"$sum": "total"}}}}
//! ```
//!
//! CouchDB refuses queries with such a member, so none of its queries has another meaning here.

mod groups;
mod memory;
mod state;

pub use groups::{Groups, SortedGroups};
pub use memory::{AggregateMemory, Growth};

use serde_json::{Map, Value};

use crate::error::FindError;
use crate::lift::Lifter;
use crate::options::Find;
use crate::path::{FieldPath, PATH_PARTS_MAX};

/// A parsed `aggregate` member.
#[derive(Clone, Debug)]
pub struct Aggregate {
    written: Value,
    lifter: Lifter,
    group_by: Vec<(String, usize)>,
    compute: Vec<(String, Function)>,
}

/// A function of a group; numbers are indexes of fields.
#[derive(Clone, Copy, Debug)]
enum Function {
    /// Counts documents.
    Count,
    /// Counts documents that have the field.
    CountField(usize),
    Sum(usize),
    Minimum(usize),
    Maximum(usize),
    Average(usize),
    Distinct(usize),
}

/// Limits of groups.
#[derive(Clone, Copy, Debug)]
pub struct AggregateLimits {
    /// Maximum number of groups (`[mango] max_aggregate_groups`).
    pub groups_max: usize,
    /// Maximum number of values that `$distinct` holds, over all groups (`[mango]
    /// max_aggregate_values`).
    pub values_max: usize,
    /// Approximate maximum memory, in bytes (`[mango] max_aggregate_bytes`).
    pub bytes_max: usize,
    /// The user that shares the memory of all aggregates with others; `None` for a server admin, whose share is not limited.
    pub user: Option<u64>,
}

impl Aggregate {
    /// Parses the member.
    ///
    /// # Errors
    /// [`FindError::InvalidAggregate`], or that of a field's name.
    pub fn parse(value: &Value) -> Result<Aggregate, FindError> {
        let Value::Object(members) = value else {
            return Err(invalid("`aggregate` must be a JSON object"));
        };
        if let Some(name) = members.keys().find(|k| *k != "group_by" && *k != "compute") {
            return Err(invalid(&format!("`aggregate` has no member `{name}`")));
        }
        let mut aggregate = Aggregate {
            written: value.clone(),
            lifter: Lifter::default(),
            group_by: vec![],
            compute: vec![],
        };
        match members.get("group_by") {
            None => {}
            Some(Value::Array(names)) if names.len() <= PATH_PARTS_MAX => {
                for name in names {
                    let span = aggregate.field(name)?;
                    let name = name.as_str().unwrap_or_default().to_owned();
                    if aggregate.group_by.iter().any(|(_, other)| *other == span) {
                        return Err(invalid(&format!("`group_by` names `{name}` twice")));
                    }
                    aggregate.group_by.push((name, span));
                }
            }
            Some(_) => {
                return Err(invalid(&format!(
                    "`group_by` must be an array of at most {PATH_PARTS_MAX} fields"
                )));
            }
        }
        let empty = Map::new();
        let compute = match members.get("compute") {
            None => &empty,
            Some(Value::Object(compute)) => compute,
            Some(_) => return Err(invalid("`compute` must be a JSON object")),
        };
        for (name, function) in compute {
            let function = aggregate.function(name, function)?;
            aggregate.compute.push((name.clone(), function));
        }
        if aggregate.compute.is_empty() && aggregate.group_by.is_empty() {
            return Err(invalid("`aggregate` needs `group_by` or `compute`"));
        }
        Ok(aggregate)
    }

    fn field(&mut self, name: &Value) -> Result<usize, FindError> {
        let Value::String(name) = name else {
            return Err(invalid(&format!("a field must be a string, not: {name}")));
        };
        Ok(self.lifter.try_add(&FieldPath::parse(name)?)?)
    }

    fn function(&mut self, name: &str, value: &Value) -> Result<Function, FindError> {
        let one = value.as_object().filter(|m| m.len() == 1);
        let Some((function, field)) = one.and_then(|m| m.iter().next()) else {
            let text = format!("`{name}` must be an object of one function and its field");
            return Err(invalid(&text));
        };
        if function == "$count" && *field == true {
            return Ok(Function::Count);
        }
        let of_field = match function.as_str() {
            "$count" => Function::CountField,
            "$sum" => Function::Sum,
            "$min" => Function::Minimum,
            "$max" => Function::Maximum,
            "$average" => Function::Average,
            "$distinct" => Function::Distinct,
            _ => {
                return Err(invalid(&format!(
                    "no function `{function}`: there are $count, $sum, $min, $max, $average and $distinct"
                )));
            }
        };
        Ok(of_field(self.field(field)?))
    }

    /// Returns the member as it was written.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Returns the fields that it names, each once.
    pub fn paths(&self) -> &[FieldPath] {
        self.lifter.paths()
    }
}

fn invalid(reason: &str) -> FindError {
    FindError::InvalidAggregate(reason.to_owned())
}

/// Refuses options that have no meaning with an aggregate.
pub(crate) fn check(find: &Find) -> Result<(), FindError> {
    let refused = [
        ("sort", !find.sort.fields.is_empty()),
        ("fields", !find.fields.is_all()),
        ("bookmark", find.bookmark.is_some()),
        ("conflicts", find.conflicts),
    ];
    match refused.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(invalid(&format!(
            "`{name}` means nothing together with `aggregate`"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lift::Doc;
    use serde_json::json;

    const LIMITS: AggregateLimits = AggregateLimits {
        groups_max: 3,
        values_max: 4,
        bytes_max: 10_000,
        user: None,
    };

    fn answer(groups: Groups) -> Value {
        let mut out = b"[".to_vec();
        let mut sorted = groups.sorted(0, u64::MAX);
        loop {
            let enough = out.len() + 1;
            if !sorted.write(&mut out, enough) {
                break;
            }
        }
        out.push(b']');
        serde_json::from_slice(&out).unwrap()
    }

    fn groups(aggregate: Value, docs: &[Value]) -> Result<Groups, FindError> {
        let aggregate = Aggregate::parse(&aggregate)?;
        let first = Groups::new(&aggregate, LIMITS);
        let mut halves = [first.part(), first];
        for (i, doc) in docs.iter().enumerate() {
            halves[i % 2].add(&Doc::whole(doc.to_string().as_bytes()))?;
        }
        let [second, mut first] = halves;
        first.merge(second)?;
        Ok(first)
    }

    #[test]
    fn groups_come_in_the_order_of_their_values() {
        let docs = [
            json!({"c": "b", "n": 1}),
            json!({"c": "a", "n": 2.5, "x": {"y": 1}}),
            json!({"c": "b", "n": 3, "x": {"y": 2}}),
            json!({"n": 7}),
            json!({"c": "b", "n": "text"}),
        ];
        let aggregate = json!({"group_by": ["c"], "compute": {
            "docs": {"$count": true}, "with": {"$count": "x.y"}, "sum": {"$sum": "n"}, "lowest": {"$min": "n"},
            "highest": {"$max": "n"}, "mean": {"$average": "n"}, "all": {"$distinct": "n"}}});
        let mut limited = groups(aggregate.clone(), &docs[..4]).unwrap();
        limited.limits.values_max = 9;
        limited
            .add(&Doc::whole(docs[4].to_string().as_bytes()))
            .unwrap();
        assert_eq!(
            answer(limited),
            json!([
                {"key": {}, "value": {"docs": 1, "with": 0, "sum": 7, "lowest": 7, "highest": 7, "mean": 7.0, "all": [7]}},
                {"key": {"c": "a"}, "value": {"docs": 1, "with": 1, "sum": 2.5, "lowest": 2.5, "highest": 2.5, "mean": 2.5, "all": [2.5]}},
                {"key": {"c": "b"}, "value": {"docs": 3, "with": 1, "sum": 4, "lowest": 1, "highest": "text", "mean": 2.0,
                    "all": [1, 3, "text"]}},
            ])
        );
        assert!(matches!(
            groups(aggregate, &docs),
            Err(FindError::AggregateTooLarge(_))
        ));
    }

    #[test]
    fn more_groups_than_allowed_are_refused() {
        let docs: Vec<Value> = (0..4).map(|n| json!({"n": n})).collect();
        let refused = groups(json!({"group_by": ["n"]}), &docs);
        assert!(matches!(refused, Err(FindError::AggregateTooLarge(_))));
        let one = groups(json!({"compute": {"n": {"$sum": "n"}}}), &docs).unwrap();
        assert_eq!(answer(one), json!([{"key": {}, "value": {"n": 6}}]));
    }

    #[test]
    fn what_is_no_aggregate_is_refused() {
        for wrong in [
            json!(1),
            json!({}),
            json!({"group_by": "a"}),
            json!({"group_by": [1]}),
            json!({"compute": []}),
            json!({"compute": {"a": "b"}}),
            json!({"compute": {"a": {"$median": "b"}}}),
            json!({"compute": {"a": {"$sum": 1}}}),
            json!({"compute": {"a": {"$sum": "b", "$min": "b"}}}),
            json!({"groups": []}),
            json!({"group_by": ["a", "a"]}),
            json!({"group_by": ["a..b"]}),
        ] {
            assert!(Aggregate::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn of_equal_values_the_text_that_comes_first_is_shown() {
        let docs = [json!({"n": 1.0}), json!({"n": 1}), json!({"n": 1.0})];
        let aggregate = json!({"group_by": ["n"], "compute": {"all": {"$distinct": "n"}}});
        for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1]] {
            let docs = order.map(|i| docs[i].clone());
            let groups = groups(aggregate.clone(), &docs).unwrap();
            let expected = json!([{"key": {"n": 1}, "value": {"all": [1]}}]);
            assert_eq!(answer(groups).to_string(), expected.to_string());
        }
    }

    #[test]
    fn no_documents_are_one_group_without_group_by() {
        let all = json!({"n": {"$count": true}, "s": {"$sum": "x"}, "m": {"$max": "x"}, "d": {"$distinct": "x"}});
        let none = groups(json!({"compute": all}), &[]).unwrap();
        let expected = json!([{"key": {}, "value": {"n": 0, "s": 0, "m": null, "d": []}}]);
        assert_eq!(answer(none), expected);
        let none = groups(json!({"group_by": ["x"], "compute": all}), &[]).unwrap();
        assert_eq!(answer(none), json!([]));
    }

    #[test]
    fn more_bytes_than_allowed_are_refused() {
        let long = |n: usize| json!({"s": format!("{n}{}", "x".repeat(2000))});
        for aggregate in [
            json!({"group_by": ["s"]}),
            json!({"compute": {"d": {"$distinct": "s"}}}),
        ] {
            assert!(groups(aggregate.clone(), &[long(1)]).is_ok());
            let refused = groups(aggregate, &[long(1), long(2), long(3)]);
            assert!(matches!(refused, Err(FindError::AggregateTooLarge(_))));
        }
        let extremes = json!({"compute": {"l": {"$min": "s"}}});
        assert!(groups(extremes, &[long(1), long(1), long(1)]).is_ok());
    }
}
