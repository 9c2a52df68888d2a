//! The ini dialect of CouchDB: reading it, and changing one value of a file in place.
//!
//! The rules are those of CouchDB's `config` application, as stated by its tests:
//! - lines end with CR LF, LF, CR or 0x1A; white space around a line does not count;
//! - `;` at the start of a line, or after a space or tab, begins a comment; elsewhere it belongs to the value;
//! - `[name]` begins a section, name taken literally; lines before the first section are ignored;
//! - a line is split at its first ` = `, else at its first `=`; so keys may contain `=`;
//! - an empty value removes the key that an earlier line or file set;
//! - anything else is ignored.
//!
//! The common ini crates were passed over because each breaks one of these (inline comments, `=` in keys, escapes).

/// One `key = value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Section that the line stands in.
    pub section: String,
    /// Key, case kept.
    pub key: String,
    /// Value; `None` for an empty one, which removes the key.
    pub value: Option<String>,
}

/// A parsed line of a file.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Blank,
    Section(&'a str),
    Pair(&'a str, &'a str),
    Ignored,
}

/// The entries of `text`, in order, and the numbers (from 1) of the lines that were ignored though not blank.
pub fn parse(text: &str) -> (Vec<Entry>, Vec<usize>) {
    let mut entries = Vec::new();
    let mut ignored = Vec::new();
    let mut section = None;
    for (index, line) in lines(text).enumerate() {
        match (classify(line), section) {
            (Line::Blank, _) => {}
            (Line::Section(name), _) => section = Some(name),
            (Line::Pair(key, value), Some(section)) => entries.push(entry(section, key, value)),
            _ => ignored.push(index + 1),
        }
    }
    (entries, ignored)
}

/// `text` with `key` of `section` set to `value`; with an empty value, marked as removed.
///
/// Comments, order and all other lines stay. The last line that sets the key is replaced, since the last one wins;
/// else a line is added at the end of the section's last block; else the section is added at the end.
pub fn with_value(text: &str, section: &str, key: &str, value: &str) -> String {
    let mut lines: Vec<&str> = lines(text).collect();
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    let pair = format!("{key} = {value}");
    let pair = pair.trim_end();
    let header = format!("[{section}]");
    match find(&lines, section, key) {
        Place::Replace(at) => lines[at] = pair,
        Place::Insert(at) => lines.insert(at, pair),
        Place::NewSection => {
            if !lines.is_empty() {
                lines.push("");
            }
            lines.push(&header);
            lines.push(pair);
        }
    }
    lines.join("\n") + "\n"
}

/// Where a value is to be written.
enum Place {
    Replace(usize),
    Insert(usize),
    NewSection,
}

fn find(lines: &[&str], section: &str, key: &str) -> Place {
    let mut inside = false;
    let mut replace = None;
    let mut insert = None;
    for (at, line) in lines.iter().enumerate() {
        match classify(line) {
            Line::Section(name) => {
                inside = name == section;
                insert = if inside { Some(at + 1) } else { insert };
            }
            Line::Pair(found, _) if inside && found == key => replace = Some(at),
            Line::Pair(..) if inside => insert = Some(at + 1),
            _ => {}
        }
    }
    match (replace, insert) {
        (Some(at), _) => Place::Replace(at),
        (None, Some(at)) => Place::Insert(at),
        (None, None) => Place::NewSection,
    }
}

fn entry(section: &str, key: &str, value: &str) -> Entry {
    Entry {
        section: section.to_owned(),
        key: key.to_owned(),
        value: (!value.is_empty()).then(|| value.to_owned()),
    }
}

/// Lines without their ends. CR LF is one end.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .flat_map(|line| line.split(['\r', '\u{1a}']))
}

fn classify(line: &str) -> Line<'_> {
    let line = without_comment(line.trim()).trim();
    if line.is_empty() {
        return Line::Blank;
    }
    if let Some(rest) = line.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((name, "")) if !name.is_empty() => Line::Section(name),
            _ => Line::Ignored,
        };
    }
    match line.split_once(" = ").or_else(|| line.split_once('=')) {
        Some((key, value)) if !key.is_empty() => Line::Pair(key.trim(), value.trim()),
        _ => Line::Ignored,
    }
}

fn without_comment(line: &str) -> &str {
    if line.starts_with(';') {
        return "";
    }
    let end = [" ;", "\t;"]
        .iter()
        .filter_map(|mark| line.find(mark))
        .min();
    &line[..end.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, Option<String>)> {
        parse(text)
            .0
            .into_iter()
            .map(|e| (e.key, e.value))
            .collect()
    }

    fn set(key: &str, value: &str) -> Vec<(String, Option<String>)> {
        vec![(key.to_owned(), Some(value.to_owned()))]
    }

    #[test]
    fn lines_that_are_no_pairs_are_ignored() {
        let texts = [
            "",
            "k",
            "\r\n",
            "[s]",
            "[s ]",
            "k1\nk2",
            "=",
            "==",
            "= =",
            ";",
            " ;",
            "k = v",
            "[s]\n;k = v",
            "[s\nk=v",
            "s]\nk=v",
            ";[s]\nk = v",
            "[s]\n\t;k = v",
            "[s]\nk ;=v",
            "[]\nk = v",
            "[s]x\nk = v",
            "[s]\n= v",
        ];
        for text in texts {
            assert_eq!(pairs(text), vec![], "{text:?}");
        }
    }

    #[test]
    fn space_around_keys_and_values_does_not_count() {
        for text in [
            "k=v",
            "k = v",
            "k= v",
            "k  =v",
            "  k=  v  ",
            "k = v ; c",
            "k = v\t;c",
            "\r\n;\nk=v\r\n",
        ] {
            assert_eq!(pairs(&format!("[s]\n{text}")), set("k", "v"), "{text:?}");
        }
    }

    #[test]
    fn an_equal_sign_may_stand_in_a_value_and_in_a_key() {
        assert_eq!(pairs("[s]\nk==v"), set("k", "=v"));
        assert_eq!(pairs("[s]\nk=v=v"), set("k", "v=v"));
        assert_eq!(pairs("[s]\nk = =v"), set("k", "=v"));
        assert_eq!(pairs("[s]\nk= = v"), set("k=", "v"));
        assert_eq!(pairs("[s]\nsha:a== = v = w"), set("sha:a==", "v = w"));
    }

    #[test]
    fn a_semicolon_begins_a_comment_only_after_space() {
        assert_eq!(pairs("[s]\nk=;"), set("k", ";"));
        assert_eq!(pairs("[s]\nk = v1;v2;"), set("k", "v1;v2;"));
        assert_eq!(pairs("[s]\nk = v1;v2 ;c1; c2"), set("k", "v1;v2"));
    }

    #[test]
    fn an_empty_value_removes() {
        for text in ["k=", "k =", "k = ", "k = ;", "k =\t;v"] {
            assert_eq!(
                pairs(&format!("[s]\n{text}")),
                vec![("k".to_owned(), None)],
                "{text:?}"
            );
        }
    }

    #[test]
    fn ignored_lines_are_reported_by_number() {
        assert_eq!(parse("x\n[s]\nk = v\ngarbage\n").1, vec![1, 4]);
    }

    #[test]
    fn setting_keeps_comments_and_order() {
        let text = "; top\n[a]\n; about x\nx = 1 ; one\n\n[b]\ny = 2\n";
        assert_eq!(
            with_value(text, "a", "x", "9"),
            "; top\n[a]\n; about x\nx = 9\n\n[b]\ny = 2\n"
        );
        assert_eq!(
            with_value(text, "a", "z", "9"),
            "; top\n[a]\n; about x\nx = 1 ; one\nz = 9\n\n[b]\ny = 2\n"
        );
        assert_eq!(
            with_value(text, "c", "z", "9"),
            format!("{text}\n[c]\nz = 9\n")
        );
        assert_eq!(with_value("", "c", "z", "9"), "[c]\nz = 9\n");
        assert_eq!(with_value("[c]\nz = 9\n", "c", "z", ""), "[c]\nz =\n");
    }

    #[test]
    fn the_last_of_several_lines_is_the_one_replaced() {
        assert_eq!(
            with_value("[a]\nx=1\n[b]\nx=2\n[a]\nx=3\n", "a", "x", "4"),
            "[a]\nx=1\n[b]\nx=2\n[a]\nx = 4\n"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_and_a_written_value_reads_back(
            text in "[\\[\\]a-c=; \t\r\n\u{1a}é]{0,60}",
            key in "[A-Za-z:/|*é][A-Za-z0-9:/|*_-]{0,8}",
            value in "[^\\s;\\p{C}]([^;\\p{C}]{0,10}[^\\s;\\p{C}])?",
        ) {
            let written = with_value(&text, "sec", &key, &value);
            let last = parse(&written).0.into_iter().rfind(|e| e.section == "sec" && e.key == key);
            prop_assert_eq!(last.and_then(|e| e.value), Some(value));
            let others = |t: &str| parse(t).0.into_iter().filter(|e| e.section != "sec").collect::<Vec<_>>();
            prop_assert_eq!(others(&text), others(&written));
        }
    }
}
