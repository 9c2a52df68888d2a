//! Groups, and the flags in effect within them.

use super::{BACK_REFERENCE, Flags, Refusal, Translation, UNCLOSED_GROUP};

const NAME_LENGTH_MAX: usize = 32;
pub(super) const VERB: Refusal =
    "options and verbs such as (*ANYCRLF) and (*FAIL) are not supported";
pub(super) const RECURSION: Refusal = "recursion and subroutine calls are not supported";
pub(super) const LOOK_AROUND: Refusal =
    "look-around, including look-ahead and look-behind, is not supported";
/// Continuations of `(?` that are refused.
const REFUSED_GROUPS: [(&str, Refusal); 11] = [
    (">", "atomic groups are not supported"),
    ("=", LOOK_AROUND),
    ("!", LOOK_AROUND),
    ("<=", LOOK_AROUND),
    ("<!", LOOK_AROUND),
    ("P=", BACK_REFERENCE),
    ("P>", RECURSION),
    ("&", RECURSION),
    ("R", RECURSION),
    ("(", "conditional groups are not supported"),
    ("C", "callouts are not supported"),
];

impl Translation<'_> {
    /// Parses a group, after its parenthesis.
    pub(super) fn group(&mut self) -> Result<(), Refusal> {
        if let Some(verb) = self.rest.strip_prefix('*')
            && verb.starts_with(|c: char| c == ':' || c.is_ascii_alphabetic())
        {
            return Err(VERB);
        }
        if !self.eat("?") {
            self.groups += 1;
            self.open(self.flags);
            return Ok(());
        }
        if let Some((_, reason)) = REFUSED_GROUPS
            .iter()
            .find(|(p, _)| self.rest.starts_with(p))
        {
            return Err(reason);
        }
        if self.eat(":") || self.eat("|") {
            self.open(self.flags);
            return Ok(());
        }
        if self.eat("'") {
            return self.named("'");
        }
        if self.eat("P<") || self.eat("<") {
            return self.named(">");
        }
        self.change_flags()
    }

    fn named(&mut self, end: &str) -> Result<(), Refusal> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let starts_well = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        if !starts_well || name.len() > NAME_LENGTH_MAX || !self.eat(end) {
            return Err("invalid group name");
        }
        self.groups += 1;
        self.open(self.flags);
        Ok(())
    }

    /// Parses the rest of `(?i)` or `(?i:`.
    fn change_flags(&mut self) -> Result<(), Refusal> {
        let mut flags = self.flags;
        let mut on = true;
        loop {
            match self.next().ok_or(UNCLOSED_GROUP)? {
                'i' => flags.caseless = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_all = on,
                'x' => flags.extended = on,
                'U' | 'J' | 'X' => {}
                '-' => on = false,
                ')' => {
                    self.flags = flags;
                    self.repeatable = false;
                    return Ok(());
                }
                ':' => {
                    self.open(flags);
                    return Ok(());
                }
                '+' | '0'..='9' => return Err(RECURSION),
                _ => return Err("unrecognized character after (?"),
            }
        }
    }

    fn open(&mut self, flags: Flags) {
        self.outer.push(self.flags);
        self.flags = flags;
        self.assertion("(?:");
    }

    pub(super) fn close(&mut self) -> Result<(), Refusal> {
        self.flags = self.outer.pop().ok_or("unopened group")?;
        self.atom(")");
        Ok(())
    }
}
