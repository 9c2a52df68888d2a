//! Where functions depend on what SpiderMonkey, CouchDB's engine, does beyond the language's
//! standard, or on the time zone.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The default time zone of dates.
pub const UTC: &str = "UTC";

/// Other names of UTC, some of them also with `Etc/`.
const NAMES_OF_UTC: [&str; 11] = [
    "UTC0",
    "UTC+0",
    "UTC-0",
    "UCT",
    "GMT",
    "GMT0",
    "GMT+0",
    "GMT-0",
    "Greenwich",
    "Universal",
    "Zulu",
];

/// The system's database of time zones.
const ZONES: &str = "/usr/share/zoneinfo";
/// The file of the machine's time zone, often a link into the database.
const LOCAL_ZONE: &str = "/etc/localtime";

/// White space as escaped in JSON text.
const ESCAPED_SPACE: [&str; 3] = ["\\n", "\\r", "\\t"];

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

/// Returns the time zone of this process as a value of `TZ`: that variable, or the file of the
/// machine's time zone if it is not set.
pub fn process_time_zone() -> String {
    match std::env::var_os("TZ") {
        Some(name) => name.to_string_lossy().into_owned(),
        None if Path::new(LOCAL_ZONE).exists() => LOCAL_ZONE.to_owned(),
        None => UTC.to_owned(),
    }
}

/// Returns the name of the time zone of a value of `TZ`: [`UTC`] for all names of that. `None` if the
/// system does not know the value; dates are then in UTC.
pub fn known_time_zone(value: &str) -> Option<String> {
    let value = value.strip_prefix(':').unwrap_or(value);
    let of_file = name_of_file(value).filter(|name| is_utc(name) || is_zone(name));
    let name = of_file.unwrap_or_else(|| value.to_owned());
    if is_utc(&name) {
        return Some(UTC.to_owned());
    }
    (is_zone(&name) || is_rule(&name)).then_some(name)
}

fn is_utc(name: &str) -> bool {
    let plain = name.strip_prefix("Etc/").unwrap_or(name);
    name.is_empty() || plain == UTC || NAMES_OF_UTC.contains(&plain)
}

/// Returns the name in the database of a time zone that is given by the absolute path of its file,
/// or of a link to it.
fn name_of_file(path: &str) -> Option<String> {
    let name = |path: &str| Some(path.split_once("/zoneinfo/")?.1.to_owned());
    if !path.starts_with('/') {
        return None;
    }
    name(path).or_else(|| name(std::fs::read_link(path).ok()?.to_str()?))
}

/// Whether there is a file of a time zone by this name in the database, or by this absolute path.
fn is_zone(name: &str) -> bool {
    let mut magic = [0; 4];
    let file = File::open(Path::new(ZONES).join(name));
    let read = file.and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"TZif"
}

/// Whether a time zone is described by its rules, which begin with a name and an offset: `CET-1`,
/// `<+03>-3`.
fn is_rule(text: &str) -> bool {
    let offset = match text.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>').map(|(_, offset)| offset),
        None => {
            let offset = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            (text.len() - offset.len() >= 3).then_some(offset)
        }
    };
    offset.is_some_and(|offset| {
        let hours = offset.strip_prefix(['+', '-']).unwrap_or(offset);
        hours.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Whether a text, a source or JSON text with sources, names the last match of all regular expressions:
/// `RegExp.$1`, `RegExp["$&"]`, `RegExp.lastMatch`, or `RegExp` under another name.
pub(crate) fn names_last_match(text: &str) -> bool {
    let names = |(at, name): (usize, &str)| {
        let rest = trim_start(&text[at + name.len()..]);
        if let Some(member) = rest.strip_prefix('.') {
            let member = trim_start(member);
            return PARTS_OF_MATCH.iter().any(|part| member.starts_with(part));
        }
        rest.starts_with('[') || ends_with_assignment(&text[..at]) && !rest.starts_with('(')
    };
    text.match_indices("RegExp").any(names)
}

/// Whether the last operator of a text is `=`, not a comparison.
fn ends_with_assignment(text: &str) -> bool {
    let operator = trim_end(text).strip_suffix('=');
    operator.is_some_and(|start| !start.ends_with(['=', '!', '<', '>']))
}

/// Removes white space from the start of a source, or of JSON text with it.
fn trim_start(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some(shorter) = ESCAPED_SPACE.iter().find_map(|s| rest.strip_prefix(*s)) {
        rest = shorter.trim_start();
    }
    rest
}

/// Removes white space from the end of a source, or of JSON text with it.
fn trim_end(text: &str) -> &str {
    let mut rest = text.trim_end();
    while let Some(shorter) = ESCAPED_SPACE.iter().find_map(|s| rest.strip_suffix(*s)) {
        rest = shorter.trim_end();
    }
    rest
}

/// Whether a text, a source or JSON text with sources, may sort by a comparator: it has the member
/// `sort`, `.sort` or `["sort"]`, for something else than a call without arguments.
fn may_sort_by_comparator(text: &str) -> bool {
    let may = |(at, name): (usize, &str)| {
        let rest = after_member(&text[..at], &text[at + name.len()..]);
        rest.is_some_and(|rest| match rest.strip_prefix('(') {
            Some(arguments) => !trim_start(arguments).starts_with(')'),
            None => true,
        })
    };
    text.match_indices("sort").any(may)
}

/// Whether a text, a source or JSON text with sources, may have `Date` read a text: it calls
/// `Date(…)` with arguments or `Date.parse`, or has `Date` under another name.
pub(crate) fn reads_dates(text: &str) -> bool {
    let may = |(at, name): (usize, &str)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let is_escape = ESCAPED_SPACE.iter().any(|space| before.ends_with(space));
        let is_part = before.ends_with(is_in_identifier) && !is_escape;
        let before = trim_end(before);
        if is_part || after.starts_with(is_in_identifier) || before.ends_with('.') {
            return false;
        }
        let rest = trim_start(after);
        match rest.chars().next() {
            Some('(') => !trim_start(&rest[1..]).starts_with(')'),
            Some('.') => trim_start(&rest[1..]).starts_with("parse"),
            Some('[') => true,
            Some(')' | ',' | ';' | '}' | ']') | None => {
                ends_with_assignment(before)
                    || before.ends_with(['(', ',', ':', '[', '?', '|', '&'])
            }
            Some(_) => ends_with_assignment(before),
        }
    };
    text.match_indices("Date").any(may)
}

fn is_in_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns the text after a member, if what is between these two texts is the whole name of one.
fn after_member<'t>(before: &str, after: &'t str) -> Option<&'t str> {
    if trim_end(before).ends_with('.') {
        return (!after.starts_with(is_in_identifier)).then(|| trim_start(after));
    }
    let quote = before.chars().next_back()?;
    if !matches!(quote, '"' | '\'' | '`') {
        return None;
    }
    // JSON text has a backslash before quotes.
    let before = before.strip_suffix(quote)?;
    let before = before.strip_suffix('\\').unwrap_or(before);
    let after = after.strip_prefix('\\').unwrap_or(after);
    let after = trim_start(after.strip_prefix(quote)?);
    let after = trim_start(after.strip_prefix(']').unwrap_or(after));
    trim_end(before).ends_with('[').then_some(after)
}

/// Words of functions whose results are SpiderMonkey's since version 1 of the [`dialect`], besides
/// `sort`.
const FUNCTIONS: [&str; 4] = ["localeCompare", "toLocale", "toSource", "uneval"];

/// Returns what results of JavaScript functions depend on besides their sources, for signatures of
/// indexes: `None` if it is nothing. `time_zone` is that of dates, as [`known_time_zone`] returns
/// it.
///
/// **What it returns for a source may never change**, as for all parts of signatures, unless results do.
pub fn dialect<'t>(sources: impl IntoIterator<Item = &'t str>, time_zone: &str) -> Option<String> {
    let mut depends_on_engine = false;
    let mut depends_on_zone = false;
    let mut reads = false;
    for source in sources {
        depends_on_engine |= FUNCTIONS.iter().any(|name| source.contains(name));
        depends_on_engine |= may_sort_by_comparator(source) || names_last_match(source);
        depends_on_zone |= time_zone != UTC && source.contains("Date");
        reads |= reads_dates(source);
    }
    let engine = depends_on_engine.then(|| "spidermonkey 1".to_owned());
    let zone = depends_on_zone.then(|| format!("time zone {time_zone}"));
    let dates = reads.then(|| "dates 1".to_owned());
    let parts: Vec<String> = [engine, zone, dates].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
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
            r#"{"m":"RegExp\n  .$1; var r =\n RegExp;"}"#,
            "r ||= RegExp",
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
            "if (x.constructor == RegExp) {}",
            "x.constructor===RegExp",
            "x.constructor !== RegExp",
            "x.constructor != RegExp",
        ] {
            assert!(!names_last_match(text), "{text}");
        }
    }

    #[test]
    fn texts_that_may_sort_by_a_comparator_are_found() {
        for text in [
            "a.sort(f)",
            "a . sort ( function (a, b) { return a > b } )",
            "a[\"sort\"](f)",
            "a[ 'sort' ](f)",
            r#"{"m":"a[\"sort\"](f)"}"#,
            r#"{"m":"a\n  .sort(\n    f)"}"#,
            "Array.prototype.sort.call(a, f)",
            "var s = a.sort; s.call(a, f)",
            "a?.sort?.(f)",
            "a.sort(); b.sort(f)",
            "a.sort",
        ] {
            assert!(may_sort_by_comparator(text), "{text}");
        }
        for text in [
            "a.sort()",
            "a.sort ( )",
            r#"{"m":"a.sort(\n)"}"#,
            "a['sort']()",
            "a.sorted(f)",
            "a.sort_by(f)",
            "a.sort$(f)",
            "doc.resort(f)",
            "emit(\"sort\", 1)",
            "sort(f)",
            "{sort: 1}",
            "",
        ] {
            assert!(!may_sort_by_comparator(text), "{text}");
        }
    }

    #[test]
    fn texts_that_may_have_dates_read_are_found() {
        for text in [
            "new Date(doc.t)",
            "Date.parse(doc.t)",
            "new Date ( doc.t )",
            r#"{"m":"x;\nDate\n.parse(t)"}"#,
            "Date['parse'](t)",
            "var D = Date; new D(t)",
            "var D = Date",
            "read(Date, t)",
            "new (Date)(t)",
        ] {
            assert!(reads_dates(text), "{text}");
        }
        for text in [
            "new Date()",
            "new Date",
            "Date.now()",
            "Date.UTC(2015, 1, 1)",
            "doc.Date",
            "doc['Date']",
            r#"{"Date": 1, "m": "d.toDateString(x) + upDate(d) + Dates(x)"}"#,
            "x instanceof Date && x",
            "// Date of the order",
            "",
        ] {
            assert!(!reads_dates(text), "{text}");
        }
    }

    #[test]
    fn all_names_of_utc_are_one_time_zone() {
        for name in [
            "", "UTC", "Etc/UTC", "UTC0", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", ":UTC", ":",
        ] {
            assert_eq!(known_time_zone(name).as_deref(), Some(UTC), "{name}");
        }
        let file = known_time_zone("/usr/share/zoneinfo/Etc/UTC");
        assert_eq!(file.as_deref(), Some(UTC));
    }

    #[test]
    fn time_zones_are_in_the_database_or_described_by_rules() {
        for rule in ["CET-1CEST,M3.5.0,M10.5.0/3", "JST-9", "<+0330>-3:30"] {
            assert_eq!(known_time_zone(rule).as_deref(), Some(rule));
        }
        let unknown = ["Nowhere/Place", "Nowhere/Place1", "utc", "zone.tab", "X5"];
        for name in unknown.into_iter().chain(["/", "CET-"]) {
            assert_eq!(known_time_zone(name), None, "{name}");
        }
    }

    #[test]
    fn a_dialect_is_that_of_functions_that_depend_on_it() {
        let of = |source: &str, zone| dialect([source], zone);
        assert_eq!(of("emit(new Date().getHours())", "UTC"), None);
        assert_eq!(
            of("emit(new Date().getHours())", "Europe/Berlin").as_deref(),
            Some("time zone Europe/Berlin")
        );
        let parsed = of("emit(new Date(doc.t).getHours())", "Europe/Berlin");
        assert_eq!(parsed.as_deref(), Some("time zone Europe/Berlin dates 1"));
        assert_eq!(of("emit(doc.t)", "Europe/Berlin"), None);
        assert_eq!(of("a.sort()", "UTC"), None);
        for source in ["a.sort(f)", "a.localeCompare(b)", "uneval(a)", "RegExp.$1"] {
            assert_eq!(of(source, "UTC").as_deref(), Some("spidermonkey 1"));
        }
        assert_eq!(
            of("a.sort(f); new Date()", "Asia/Tokyo").as_deref(),
            Some("spidermonkey 1 time zone Asia/Tokyo")
        );
    }
}
