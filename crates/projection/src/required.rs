//! Finds the modules that a function requires by literal names.

/// Maximum number of names.
const NAMES_MAX: usize = 64;

/// Returns the names in calls like `require("lib/a")`. They depend on the source alone, so modules
/// that are loaded before a function's calls are the same in every heap. A name in a comment counts
/// too; one that is computed at run time does not.
pub fn required(source: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (at, word) in source.match_indices("require") {
        let name = literal(&source[at + word.len()..]);
        if let Some(name) = name.filter(|name| !names.iter().any(|known| known == name)) {
            names.push(name.to_owned());
        }
        if names.len() == NAMES_MAX {
            break;
        }
    }
    names
}

/// Returns the text of `("text")`, if the source continues with that.
fn literal(source: &str) -> Option<&str> {
    let inner = source.trim_start().strip_prefix('(')?.trim_start();
    let quote = inner.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (name, rest) = inner[1..].split_once(quote)?;
    let is_plain = !name.contains(['\\', '\n', '\r']);
    (is_plain && rest.trim_start().starts_with(')')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_names_are_found() {
        let source =
            "function (d) { var a = require('lib/a'), b = require ( \"b\" ), c = require(x + 'c');
            required('d'); require('e' + x); require('f\\\\'); require('lib/a') }";
        assert_eq!(required(source), ["lib/a", "b"]);
        assert_eq!(required("require"), Vec::<String>::new());
        assert_eq!(required("require('"), Vec::<String>::new());
    }
}
