//! Character escapes, and classes.

use std::fmt::Write;

use super::{Refusal, Translation};

/// `\h`: PCRE's list.
const HORIZONTAL: &str = r"\t\x20\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
/// `\v`: PCRE's list.
const VERTICAL: &str = r"\n-\r\x{85}\x{2028}\x{2029}";
const UNICODE_SPACE: &str = r"\p{Z}\t-\r\x{85}\x{180E}";
const UNICODE_WORD: &str = r"\p{L}\p{N}_";

const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

pub(super) const INVALID_CODE: Refusal = r"invalid character code in \x{} or \o{}";

/// A member of a class.
enum ClassMember {
    Char(char),
    /// Several, as they are written between brackets.
    Set(String),
}

/// Writes a literal character, in a class or outside of it.
pub(super) fn write_char(output: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // Writing to a string cannot fail.
        let _ = write!(output, r"\x{:02X}", u32::from(c));
    } else {
        output.push(c);
    }
}

fn write_range(output: &mut String, low: char, high: char) {
    write_char(output, low);
    if low != high {
        output.push('-');
        write_char(output, high);
    }
}

/// Writes the ASCII letters of the range in the other case.
fn write_other_cases(output: &mut String, low: char, high: char) {
    for (first, last) in [('a', 'z'), ('A', 'Z')] {
        let (low, high) = (low.max(first), high.min(last));
        if low <= high {
            let other = |c: char| char::from(c as u8 ^ b' ');
            write_range(output, other(low), other(high));
        }
    }
}

/// Returns a set of members, or its complement.
fn set(members: &str, negated: bool) -> String {
    if negated {
        format!("[^{members}]")
    } else {
        members.to_owned()
    }
}

/// The last character that has another case (U+1E943).
const LAST_CASED: u32 = 0x1E943;

/// Maximum number of characters of caseless classes in a selector: the compiler takes about 25 ns
/// for each, before it checks sizes.
const FOLDED_MAX: u32 = 1 << 22;
/// The number of characters that a short list of them counts as in a caseless class.
const SHORT_LIST: u32 = 128;

/// Maximum number of ranges of Unicode's properties in a selector: each takes 8 bytes until the
/// sizes of its expression are checked.
const RANGES_MAX: u32 = 1 << 20;
/// The number of ranges that a property counts as. The largest have about 800.
const PROPERTY_RANGES: u32 = 1_000;
/// The number for small properties.
const SMALL_PROPERTY_RANGES: u32 = 100;
const SMALL_PROPERTIES: [&str; 2] = [r"\p{Nd}", r"\p{Z}"];

impl Translation<'_> {
    /// Parses a class, after its bracket.
    pub(super) fn class(&mut self) -> Result<(), Refusal> {
        if self.eat("[:<:]]") {
            self.word_edge("start");
            return Ok(());
        }
        if self.eat("[:>:]]") {
            self.word_edge("end");
            return Ok(());
        }
        if self.posix_class()?.is_some() {
            return Err("POSIX named classes are supported only within a class");
        }
        self.skip_empty_quotes();
        let negated = self.eat("^");
        self.skip_empty_quotes();
        let members = self.members()?;
        let (open, close) = if self.is_folded() {
            ("(?i:", ")")
        } else {
            ("", "")
        };
        if self.costs.folded > FOLDED_MAX {
            return Err("too many characters in caseless classes");
        }
        self.atom(&format!("{open}[{}]{close}", set(&members, negated)));
        Ok(())
    }

    /// Returns whether the compiler has to find the other cases of a class.
    fn is_folded(&self) -> bool {
        self.flags.caseless && self.unicode_cases
    }

    /// Writes `[[:<:]]` and `[[:>:]]`.
    fn word_edge(&mut self, edge: &str) {
        let flags = if self.unicode_classes { "?" } else { "?-u" };
        self.assertion(&format!(r"({flags}:\b{{{edge}}})"));
    }

    fn skip_empty_quotes(&mut self) {
        while self.eat(r"\E") || self.eat(r"\Q\E") {}
    }

    fn members(&mut self) -> Result<String, Refusal> {
        let mut output = String::new();
        let mut quoted = false;
        // A bracket that comes first is literal.
        let mut member = if self.eat("]") {
            Some(ClassMember::Char(']'))
        } else {
            self.member(&mut quoted)?
        };
        while let Some(found) = member {
            while self.eat(r"\E") {
                quoted = false;
            }
            match found {
                ClassMember::Set(members) => {
                    output.push_str(&members);
                    let is_large = members.contains(r"\p") || members.starts_with("[^");
                    self.fold(0, if is_large { LAST_CASED } else { SHORT_LIST - 1 });
                }
                ClassMember::Char(low) if !quoted && self.hyphen_of_range() => {
                    match self.member(&mut quoted)? {
                        Some(ClassMember::Char(high)) if low <= high => {
                            self.range(&mut output, low, high);
                        }
                        Some(ClassMember::Char(_)) => {
                            return Err("range out of order in character class");
                        }
                        Some(ClassMember::Set(_)) => {
                            return Err("invalid range in character class");
                        }
                        None => {
                            self.range(&mut output, low, low);
                            self.range(&mut output, '-', '-');
                            break;
                        }
                    }
                }
                ClassMember::Char(c) => self.range(&mut output, c, c),
            }
            member = self.member(&mut quoted)?;
        }
        Ok(output)
    }

    /// Takes a hyphen that does not end the class.
    fn hyphen_of_range(&mut self) -> bool {
        let rest = self.rest.strip_prefix('-');
        let rest = rest.filter(|rest| !rest.starts_with(']'));
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Counts characters whose other cases the compiler finds one by one.
    fn fold(&mut self, low: u32, high: u32) {
        if self.is_folded() {
            let looked_at = (high.min(LAST_CASED) + 1).saturating_sub(low);
            self.costs.folded = self.costs.folded.saturating_add(looked_at);
        }
    }

    /// Returns members, whose properties are counted.
    fn counted(&mut self, members: String) -> Result<String, Refusal> {
        let count = |property: &str| members.matches(property).count() as u32;
        let small = SMALL_PROPERTIES.map(count).iter().sum::<u32>();
        let large = count(r"\p") - small;
        let ranges = large * PROPERTY_RANGES + small * SMALL_PROPERTY_RANGES;
        self.costs.ranges = self.costs.ranges.saturating_add(ranges);
        if self.costs.ranges > RANGES_MAX {
            return Err("too many Unicode classes");
        }
        Ok(members)
    }

    fn range(&mut self, output: &mut String, low: char, high: char) {
        // Bytes beyond ASCII are parts of characters, and a range of all of them stands for these.
        let beyond_ascii = low < high && high == '\u{ff}' && !self.unicode_cases;
        let high = if beyond_ascii { char::MAX } else { high };
        write_range(output, low, high);
        self.fold(low.into(), high.into());
        if self.flags.caseless && !self.unicode_cases {
            write_other_cases(output, low, high);
        }
    }

    /// Returns the next member; `None` at the end of the class.
    fn member(&mut self, quoted: &mut bool) -> Result<Option<ClassMember>, Refusal> {
        loop {
            if self.eat(r"\E") {
                *quoted = false;
                continue;
            }
            if !*quoted && self.eat(r"\Q") {
                *quoted = true;
                continue;
            }
            let c = self.next().ok_or("unclosed character class")?;
            return Ok(Some(match c {
                c if *quoted => ClassMember::Char(c),
                ']' => return Ok(None),
                '[' => self
                    .posix_class()?
                    .map_or(ClassMember::Char('['), ClassMember::Set),
                '\\' => self.member_escape()?,
                c => ClassMember::Char(c),
            }));
        }
    }

    fn member_escape(&mut self) -> Result<ClassMember, Refusal> {
        let c = self.next().ok_or(r"\ at end of pattern")?;
        Ok(match c {
            'b' => ClassMember::Char('\x08'),
            'N' => return Err(r"\N is not supported in a class"),
            c => match self.set(c)? {
                Some(members) => ClassMember::Set(members),
                None => ClassMember::Char(self.character(c)?),
            },
        })
    }

    /// Parses `[:alpha:]` or `[:^alpha:]`, after its bracket.
    fn posix_class(&mut self) -> Result<Option<String>, Refusal> {
        let start = self.rest;
        let colon = self.eat(":");
        let negated = self.eat("^");
        let name = self.take_while(|c| !matches!(c, ':' | '[' | ']' | '\\'));
        if !colon || !self.eat(":]") {
            self.rest = start;
            return Ok(None);
        }
        if !POSIX_CLASSES.contains(&name) {
            return Err("unknown POSIX class name");
        }
        let members = match name {
            "lower" | "upper" if self.flags.caseless => "alpha",
            name => name,
        };
        let members = match (self.unicode_classes, members) {
            (true, "alpha") => r"\p{L}",
            (true, "lower") => r"\p{Ll}",
            (true, "upper") => r"\p{Lu}",
            (true, "alnum") => r"\p{L}\p{N}",
            (true, "digit") => r"\p{Nd}",
            (true, "space") => UNICODE_SPACE,
            (true, "blank") => HORIZONTAL,
            (true, "word") => UNICODE_WORD,
            // The compiler knows the others.
            (_, name) => return Ok(Some(set(&format!("[:{name}:]"), negated))),
        };
        self.counted(set(members, negated)).map(Some)
    }

    /// Returns the members of a multi-character escape, as they are written between brackets.
    pub(super) fn set(&mut self, letter: char) -> Result<Option<String>, Refusal> {
        let unicode = self.unicode_classes;
        let members = match letter.to_ascii_lowercase() {
            'd' if unicode => r"\p{Nd}",
            'd' => "0-9",
            'w' if unicode => UNICODE_WORD,
            'w' => "0-9A-Z_a-z",
            's' if unicode => UNICODE_SPACE,
            's' => r"\t-\r\x20",
            'h' => HORIZONTAL,
            'v' => VERTICAL,
            'p' => {
                let property = self.property(letter == 'P')?;
                return self.counted(property).map(Some);
            }
            _ => return Ok(None),
        };
        let members = set(members, letter.is_ascii_uppercase());
        self.counted(members).map(Some)
    }

    /// Parses the rest of `\p{Lu}`, `\p{^Lu}` or `\pL`.
    fn property(&mut self, negated: bool) -> Result<String, Refusal> {
        if !self.eat("{") {
            let letter = self.next().filter(char::is_ascii_alphabetic);
            let letter = letter.ok_or(r"malformed \P or \p sequence")?;
            return Ok(set(&format!(r"\p{{{letter}}}"), negated));
        }
        let negated = negated ^ self.eat("^");
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '&'));
        if !self.eat("}") {
            return Err(r"malformed \P or \p sequence");
        }
        Ok(match name {
            "L&" => set(r"\p{LC}", negated),
            "Xan" => set(r"\p{L}\p{N}", negated),
            "Xsp" | "Xps" => set(UNICODE_SPACE, negated),
            "Xwd" => set(UNICODE_WORD, negated),
            name => set(&format!(r"\p{{{name}}}"), negated),
        })
    }

    /// Returns the character of an escape, in a class or outside of it.
    pub(super) fn character(&mut self, escaped: char) -> Result<char, Refusal> {
        Ok(match escaped {
            'a' => '\x07',
            'e' => '\x1B',
            'f' => '\x0C',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'c' => match self.next() {
                Some(c) if c.is_ascii() => char::from(c.to_ascii_uppercase() as u8 ^ 0x40),
                _ => return Err(r"\c must be followed by an ASCII character"),
            },
            'o' if self.eat("{") => self.braced_code(8)?,
            'o' => return Err(r"missing opening brace after \o"),
            'x' if self.eat("{") => self.braced_code(16)?,
            'x' => self.code(0, 16)?,
            '0'..='7' => self.code(u32::from(escaped) - u32::from('0'), 8)?,
            'L' | 'l' | 'U' | 'u' => return Err(r"\L, \l, \U and \u are not supported"),
            c => c,
        })
    }

    /// Parses up to two more digits.
    fn code(&mut self, mut code: u32, radix: u32) -> Result<char, Refusal> {
        for _ in 0..2 {
            let digit = self.rest.chars().next().and_then(|c| c.to_digit(radix));
            let Some(digit) = digit else { break };
            self.next();
            code = code * radix + digit;
        }
        char::from_u32(code).ok_or(INVALID_CODE)
    }

    fn braced_code(&mut self, radix: u32) -> Result<char, Refusal> {
        let digits = self.take_while(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(digits, radix).ok();
        let code = code.filter(|_| self.eat("}")).and_then(char::from_u32);
        code.ok_or(INVALID_CODE)
    }
}
