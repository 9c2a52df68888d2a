//! Where functions depend on what SpiderMonkey, CouchDB's engine, does beyond the language's standard.

/// The default time zone of dates.
pub const UTC: &str = "UTC";

/// Names of the last match's parts, as static properties of `RegExp`.
const PARTS_OF_MATCH: [&str; 7] = [
    "$",
    "lastMatch",
    "lastParen",
    "leftContext",
    "rightContext",
    "input",
    "multiline",
];

/// Whether a text, a source or JSON text with sources, names the last match of all regular expressions:
/// `RegExp.$1`, `RegExp["$&"]`, `RegExp.lastMatch`, or `RegExp` under another name.
pub(crate) fn names_last_match(text: &str) -> bool {
    let names = |(at, name): (usize, &str)| {
        let rest = text[at + name.len()..].trim_start();
        let before = text[..at].trim_end();
        if let Some(member) = rest.strip_prefix('.') {
            let member = member.trim_start();
            return PARTS_OF_MATCH.iter().any(|part| member.starts_with(part));
        }
        rest.starts_with('[') || before.ends_with('=') && !rest.starts_with('(')
    };
    text.match_indices("RegExp").any(names)
}

/// Words of methods whose results are SpiderMonkey's since version 1 of the [`dialect`].
const METHODS: [&str; 4] = ["sort", "localeCompare", "toLocale", "toSource"];

/// Returns what results of JavaScript functions depend on besides their sources, for signatures of
/// indexes: `None` if it is nothing. `time_zone` is that of dates.
///
/// **What it returns for a source may never change**, as for all parts of signatures, unless results do.
pub fn dialect<'t>(sources: impl IntoIterator<Item = &'t str>, time_zone: &str) -> Option<String> {
    let mut depends_on_engine = false;
    let mut depends_on_zone = false;
    for source in sources {
        depends_on_engine |= METHODS.iter().any(|method| source.contains(method));
        depends_on_engine |= names_last_match(source);
        depends_on_zone |= time_zone != UTC && source.contains("Date");
    }
    let engine = depends_on_engine.then(|| "spidermonkey 1".to_owned());
    let zone = depends_on_zone.then(|| format!("time zone {time_zone}"));
    match (engine, zone) {
        (Some(engine), Some(zone)) => Some(format!("{engine} {zone}")),
        (engine, zone) => engine.or(zone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_name_the_last_match_are_found() {
        for text in [
            "RegExp.$1",
            "RegExp . lastMatch",
            r#"{"map":"emit(RegExp[\"$&\"])"}"#,
            "var r = RegExp; r.$1",
            "RegExp['$1']",
            "RegExp.input",
        ] {
            assert!(names_last_match(text), "{text}");
        }
        for text in [
            "new RegExp('$1')",
            "x instanceof RegExp && x",
            "RegExp.prototype.test",
            "var r = RegExp(x)",
            "'$1'",
            "RegExp",
        ] {
            assert!(!names_last_match(text), "{text}");
        }
    }

    #[test]
    fn a_dialect_is_that_of_functions_that_depend_on_it() {
        let of = |source: &str, zone| dialect([source], zone);
        assert_eq!(of("emit(new Date(doc.t).getHours())", "UTC"), None);
        assert_eq!(
            of("emit(new Date(doc.t).getHours())", "Europe/Berlin").as_deref(),
            Some("time zone Europe/Berlin")
        );
        assert_eq!(of("emit(doc.t)", "Europe/Berlin"), None);
        assert_eq!(of("a.sort(f)", "UTC").as_deref(), Some("spidermonkey 1"));
        assert_eq!(
            of("a.sort(f); new Date()", "Asia/Tokyo").as_deref(),
            Some("spidermonkey 1 time zone Asia/Tokyo")
        );
    }
}
