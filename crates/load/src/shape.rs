//! Which columns are members of which objects.

use serde_json::Value;

/// A member of a document or of an object in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    name: String,
    /// The name as JSON, with its colon.
    pub(crate) key: String,
    pub(crate) value: MemberValue,
}

/// The value of a member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MemberValue {
    /// The cell of the column at this place.
    Cell(usize),
    Object(Vec<Member>),
}

/// Returns the members of a document with these columns. With `nested`, a column `a.b` is the
/// member `b` of the object `a`; `\.` is a dot of a name.
///
/// # Errors
/// A column that has the same place as another one.
pub(crate) fn members(columns: &[String], nested: bool) -> Result<Vec<Member>, String> {
    let mut members = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let path = match nested {
            true => member_path(column),
            false => vec![column.clone()],
        };
        if !insert(&mut members, &path, at) {
            return Err(column.clone());
        }
    }
    Ok(members)
}

/// Returns the names on the way to a member: `a.b` is the member `b` of `a`, and `\.` is a dot of a
/// name.
#[must_use]
pub fn member_path(column: &str) -> Vec<String> {
    let mut path = vec![String::new()];
    let mut rest = column.chars().peekable();
    while let Some(character) = rest.next() {
        let is_escape = character == '\\' && rest.peek() == Some(&'.');
        if character == '.' {
            path.push(String::new());
        } else if let Some(name) = path.last_mut() {
            name.push(if is_escape { '.' } else { character });
        }
        if is_escape {
            rest.next();
        }
    }
    path
}

/// Returns whether there was a place.
fn insert(members: &mut Vec<Member>, path: &[String], at: usize) -> bool {
    let [name, rest @ ..] = path else {
        return false;
    };
    let found = members.iter_mut().find(|member| member.name == *name);
    match found.map(|member| &mut member.value) {
        Some(MemberValue::Object(inner)) => return insert(inner, rest, at),
        Some(MemberValue::Cell(_)) => return false,
        None => {}
    }
    let value = if rest.is_empty() {
        MemberValue::Cell(at)
    } else {
        let mut inner = Vec::new();
        if !insert(&mut inner, rest, at) {
            return false;
        }
        MemberValue::Object(inner)
    };
    members.push(Member {
        name: name.clone(),
        key: format!("{}:", Value::from(name.as_str())),
        value,
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(columns: &[&str], nested: bool) -> Result<Vec<Member>, String> {
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        members(&columns, nested)
    }

    fn text(members: &[Member]) -> String {
        let texts = members.iter().map(|member| match &member.value {
            MemberValue::Cell(at) => format!("{}{at}", member.key),
            MemberValue::Object(inner) => format!("{}{}", member.key, text(inner)),
        });
        format!("{{{}}}", texts.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn dots_make_objects_only_where_that_is_wanted() {
        let flat = shape(&["a.b", "c"], false).unwrap();
        assert_eq!(text(&flat), r#"{"a.b":0,"c":1}"#);
        let nested = shape(&["a.b", "c", "a.d.e", r"x\.y"], true).unwrap();
        assert_eq!(text(&nested), r#"{"a":{"b":0,"d":{"e":2}},"c":1,"x.y":3}"#);
    }

    #[test]
    fn a_place_has_one_column() {
        assert_eq!(shape(&["a", "b", "a"], false).unwrap_err(), "a");
        assert_eq!(shape(&["a", "a.b"], true).unwrap_err(), "a.b");
        assert_eq!(shape(&["a.b", "a"], true).unwrap_err(), "a");
    }
}
