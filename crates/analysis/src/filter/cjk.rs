//! Chinese, Japanese and Korean: one width of characters, and pairs of them as words.

use crate::tokenizer::{Kind, Raw};

const KATAKANA: [u32; 59] = [
    0x30fb, 0x30f2, 0x30a1, 0x30a3, 0x30a5, 0x30a7, 0x30a9, 0x30e3, 0x30e5, 0x30e7, 0x30c3, 0x30fc,
    0x30a2, 0x30a4, 0x30a6, 0x30a8, 0x30aa, 0x30ab, 0x30ad, 0x30af, 0x30b1, 0x30b3, 0x30b5, 0x30b7,
    0x30b9, 0x30bb, 0x30bd, 0x30bf, 0x30c1, 0x30c4, 0x30c6, 0x30c8, 0x30ca, 0x30cb, 0x30cc, 0x30cd,
    0x30ce, 0x30cf, 0x30d2, 0x30d5, 0x30d8, 0x30db, 0x30de, 0x30df, 0x30e0, 0x30e1, 0x30e2, 0x30e4,
    0x30e6, 0x30e8, 0x30e9, 0x30ea, 0x30eb, 0x30ec, 0x30ed, 0x30ef, 0x30f3, 0x3099, 0x309a,
];

/// Full-width ASCII becomes ASCII, half-width katakana the usual one, joined with its voice marks.
pub(super) fn width(word: &mut String) {
    if !word
        .chars()
        .any(|character| matches!(character as u32, 0xff01..=0xff9f))
    {
        return;
    }
    let mut out: Vec<char> = Vec::new();
    for character in word.chars() {
        let code = character as u32;
        let changed = match code {
            0xff01..=0xff5e => char::from_u32(code - 0xfee0),
            0xff9e | 0xff9f
                if let Some(voiced) = out.last().and_then(|last| voiced(*last, code == 0xff9f)) =>
            {
                out.pop();
                Some(voiced)
            }
            0xff65..=0xff9f => char::from_u32(KATAKANA[code as usize - 0xff65]),
            _ => None,
        };
        out.push(changed.unwrap_or(character));
    }
    *word = out.into_iter().collect();
}

/// Returns the katakana with a voice mark, or a half one.
fn voiced(kana: char, is_half: bool) -> Option<char> {
    let code = kana as u32;
    let distance = match code {
        0x30cf | 0x30d2 | 0x30d5 | 0x30d8 | 0x30db => 1 + u32::from(is_half),
        _ if is_half => return None,
        0x30a6 => 0x30f4 - 0x30a6,
        0x30ef..=0x30f2 => 8,
        0x30fd => 1,
        0x30ab..=0x30c1 if code % 2 == 1 => 1,
        0x30c4 | 0x30c6 | 0x30c8 => 1,
        _ => return None,
    };
    char::from_u32(code + distance)
}

/// A word in progress: the input of pairs.
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) increment: u32,
}

/// Makes pairs of neighbouring characters of Chinese, Japanese and Korean. A lone one stays alone.
#[derive(Default)]
pub(crate) struct Bigrams {
    last: Option<Piece>,
    /// Whether `last` is part of a pair already.
    is_paired: bool,
    last_end: usize,
}

impl Bigrams {
    /// Takes the next word, of which `text` is the changed form.
    pub(crate) fn push(&mut self, raw: &Raw<'_>, text: &str, sink: &mut dyn FnMut(Piece)) {
        if !matches!(
            raw.kind,
            Kind::Ideographic | Kind::Hiragana | Kind::Katakana | Kind::Hangul
        ) {
            self.flush(sink);
            sink(Piece {
                text: text.to_owned(),
                start: raw.start,
                end: raw.end,
                increment: raw.increment,
            });
            return;
        }
        if raw.start != self.last_end {
            self.flush(sink);
        }
        self.last_end = raw.end;
        // Offsets of single characters are known as long as no filter changed their number.
        let is_aligned = text.encode_utf16().count() == raw.text.encode_utf16().count();
        let mut places = raw.text.char_indices();
        for character in text.chars() {
            let (start, end) = match places.next().filter(|_| is_aligned) {
                Some((at, original)) => (raw.start + at, raw.start + at + original.len_utf8()),
                None => (raw.start, raw.end),
            };
            // Lucene's filter forgets gaps before the words that it joins.
            let next = Piece {
                text: character.to_string(),
                start,
                end,
                increment: 1,
            };
            if let Some(last) = self.last.take() {
                sink(Piece {
                    text: format!("{}{character}", last.text),
                    start: last.start,
                    end,
                    increment: 1,
                });
                self.is_paired = true;
            }
            self.last = Some(next);
        }
    }

    /// The text, or a run, ends.
    pub(crate) fn flush(&mut self, sink: &mut dyn FnMut(Piece)) {
        if let Some(last) = self.last.take()
            && !self.is_paired
        {
            sink(last);
        }
        self.is_paired = false;
    }
}
