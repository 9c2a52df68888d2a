//! `[chttpd_auth] password_regexp`: what new passwords must be like.

use regex::Regex;

const REASON: &str = "Password does not conform to requirements.";

/// Requirements for a password.
pub(crate) enum Requirements {
    /// Expressions, each with the message for a password that does not match it.
    All(Vec<(Regex, String)>),
    /// The setting is not understood: no password is good.
    Invalid(String),
}

/// Why a password is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PasswordRefusal {
    /// 400 `bad_request`
    Password(String),
    /// 403 `forbidden`
    Setting,
}

impl Requirements {
    /// Reads the setting: an Erlang list of strings and tuples of strings.
    pub(super) fn parse(setting: &str) -> Requirements {
        match parse_list(setting.trim()) {
            Ok(all) => Requirements::All(all),
            Err(problem) => Requirements::Invalid(problem),
        }
    }

    /// Returns the problem in the setting.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            Requirements::All(_) => None,
            Requirements::Invalid(problem) => {
                Some(format!("[chttpd_auth] password_regexp: {problem}"))
            }
        }
    }

    pub(super) fn check(&self, password: &str) -> Result<(), PasswordRefusal> {
        match self {
            Requirements::Invalid(_) => Err(PasswordRefusal::Setting),
            Requirements::All(all) => match all.iter().find(|(re, _)| !re.is_match(password)) {
                None => Ok(()),
                Some((_, reason)) => Err(PasswordRefusal::Password(reason.clone())),
            },
        }
    }
}

fn parse_list(setting: &str) -> Result<Vec<(Regex, String)>, String> {
    if setting.is_empty() {
        return Ok(vec![]);
    }
    let mut rest = setting.strip_prefix('[').ok_or("not a list")?.trim_start();
    let mut all = vec![];
    while !rest.starts_with(']') {
        let (expression, reason);
        if let Some(tuple) = rest.strip_prefix('{') {
            let (text, after) = string(tuple.trim_start())?;
            expression = text;
            let mut after = after.trim_start();
            let mut given = None;
            if let Some(second) = after.strip_prefix(',') {
                let (text, end) = string(second.trim_start())?;
                given = Some(text).filter(|text| !text.is_empty());
                after = end.trim_start();
            }
            reason = given.map_or(REASON.to_owned(), |given| format!("{REASON} {given}"));
            rest = after.strip_prefix('}').ok_or("a tuple does not end")?;
        } else {
            (expression, rest) = string(rest)?;
            reason = REASON.to_owned();
        }
        // The setting is the administrator's: the text of the error is for the log.
        all.push((Regex::new(&expression).map_err(|e| e.to_string())?, reason));
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if rest.starts_with(']') => rest,
            None => return Err("the list does not end".to_owned()),
        };
    }
    match rest[1..].trim_matches(['.', ' ']) {
        "" => Ok(all),
        _ => Err("something follows the list".to_owned()),
    }
}

/// Returns a string in quotes, and what follows it.
fn string(text: &str) -> Result<(String, &str), String> {
    let text = text.strip_prefix('"').ok_or("a string expected")?;
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((out, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c) => out.push(c),
                None => break,
            },
            c => out.push(c),
        }
    }
    Err("a string does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_couchdbs_manual_is_understood() {
        let setting = r#"[{".{10,}", "Min length is 10 chars."}, "[A-Z]+", "[a-z]+", "\\d+"]"#;
        let requirements = Requirements::parse(setting);
        let refused = |password: &str| requirements.check(password).err();
        assert_eq!(refused("Abcdefghi1"), None);
        assert_eq!(
            refused("Abc1"),
            Some(PasswordRefusal::Password(format!(
                "{REASON} Min length is 10 chars."
            )))
        );
        assert_eq!(
            refused("abcdefghi1"),
            Some(PasswordRefusal::Password(REASON.to_owned()))
        );
    }

    #[test]
    fn nothing_is_required_by_default_and_nothing_passes_what_is_not_understood() {
        for setting in ["", "[]", " [ ] "] {
            assert_eq!(Requirements::parse(setting).check(""), Ok(()), "{setting}");
        }
        for setting in [
            "x",
            "[",
            "[x]",
            r#"["("]"#,
            r#"["a" "b"]"#,
            r#"["a"] x"#,
            r#"[{"a"]"#,
            r#"["a"#,
        ] {
            let requirements = Requirements::parse(setting);
            assert!(requirements.problem().is_some(), "{setting}");
            assert_eq!(
                requirements.check("a"),
                Err(PasswordRefusal::Setting),
                "{setting}"
            );
        }
    }
}
