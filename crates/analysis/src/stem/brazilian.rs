//! Brazilian Portuguese, as Lucene's first stemmer for it has it: by parts of the word, R1, R2 and
//! RV, as Porter's.

/// Suffixes that have to stand in R2, what they become, and the least length of the word. `logias`
/// is found but stays, by an oversight in Lucene.
const DERIVED: [(&str, &str, usize); 42] = [
    ("uciones", "u", 0),
    ("imentos", "", 6),
    ("amentos", "", 6),
    ("adores", "", 6),
    ("adoras", "", 6),
    ("logias", "logias", 6),
    ("encias", "ente", 6),
    ("amente", "", 6),
    ("idades", "", 6),
    ("acoes", "", 5),
    ("imento", "", 5),
    ("amento", "", 5),
    ("adora", "", 5),
    ("ismos", "", 5),
    ("istas", "", 5),
    ("logia", "log", 5),
    ("ucion", "u", 5),
    ("encia", "ente", 5),
    ("mente", "", 5),
    ("idade", "", 5),
    ("acao", "", 4),
    ("ezas", "", 4),
    ("icos", "", 4),
    ("icas", "", 4),
    ("ismo", "", 4),
    ("avel", "", 4),
    ("ivel", "", 4),
    ("ista", "", 4),
    ("osos", "", 4),
    ("osas", "", 4),
    ("ador", "", 4),
    ("ivas", "", 4),
    ("ivos", "", 4),
    ("iras", "ir", 4),
    ("eza", "", 3),
    ("ico", "", 3),
    ("ica", "", 3),
    ("oso", "", 3),
    ("osa", "", 3),
    ("iva", "", 3),
    ("ivo", "", 3),
    ("ira", "ir", 3),
];

/// Suffixes of verbs, which have to stand in RV. `ira` is found but stays, by an oversight in
/// Lucene.
const VERBS: [&str; 114] = [
    "issemos", "essemos", "assemos", "ariamos", "eriamos", "iriamos", "iremos", "eremos", "aremos",
    "avamos", "iramos", "eramos", "aramos", "asseis", "esseis", "isseis", "arieis", "erieis",
    "irieis", "irmos", "iamos", "armos", "ermos", "areis", "ereis", "ireis", "asses", "esses",
    "isses", "astes", "assem", "essem", "issem", "ardes", "erdes", "irdes", "ariam", "eriam",
    "iriam", "arias", "erias", "irias", "estes", "istes", "areis", "aveis", "aria", "eria", "iria",
    "asse", "esse", "isse", "aste", "este", "iste", "arei", "erei", "irei", "aram", "eram", "iram",
    "avam", "arem", "erem", "irem", "ando", "endo", "indo", "arao", "erao", "irao", "adas", "idas",
    "aras", "eras", "iras", "avas", "ares", "eres", "ires", "ados", "idos", "amos", "emos", "imos",
    "iras", "ieis", "ada", "ida", "ara", "era", "ira", "iam", "ado", "ido", "ias", "ais", "eis",
    "ira", "ear", "ia", "ei", "am", "em", "ar", "er", "ir", "as", "es", "is", "eu", "iu", "iu",
    "ou",
];

pub(super) fn stem(word: &mut String) {
    let mut changed: String = word
        .to_lowercase()
        .chars()
        .map(|letter| match letter {
            'á' | 'â' | 'ã' => 'a',
            'é' | 'ê' => 'e',
            'í' => 'i',
            'ó' | 'ô' | 'õ' => 'o',
            'ú' | 'ü' => 'u',
            'ç' => 'c',
            'ñ' => 'n',
            other => other,
        })
        .collect();
    let is_mark = |letter: char| matches!(letter, '"' | '\'' | '-' | ',' | ';' | '.' | '?' | '!');
    if changed.chars().count() >= 2 && changed.starts_with(is_mark) {
        changed.remove(0);
    }
    if changed.chars().count() >= 2 && changed.ends_with(is_mark) {
        changed.pop();
    }
    let len = changed.chars().count();
    // Words that are too short or too long to be indexed are left as they were.
    if len <= 2 || len >= 30 {
        return;
    }
    if changed.chars().all(crate::characters::is_letter) {
        steps(&mut changed);
    }
    *word = changed;
}

fn steps(word: &mut String) {
    let letters: Vec<char> = word.chars().collect();
    let r1 = after_vowel_and_consonant(&letters);
    let r2 = r1
        .and_then(after_vowel_and_consonant)
        .map(String::from_iter);
    let r1 = r1.map(String::from_iter);
    let Some(rv) = after_root(&letters).map(String::from_iter) else {
        // Suffixes of derivation are looked for without it, too.
        derived(word, r1.as_deref(), r2.as_deref(), None);
        return;
    };
    let is_altered =
        derived(word, r1.as_deref(), r2.as_deref(), Some(&rv)) || cut_first(word, &rv, &VERBS);
    if is_altered {
        if rv.ends_with("ci") {
            cut(word, "i");
        }
    } else {
        cut_first(word, &rv, &["os", "a", "i", "o"]);
    }
    if rv.ends_with('e') {
        cut(word, "e");
        if rv.ends_with("gue") {
            cut(word, "u");
        } else if rv.ends_with("cie") {
            cut(word, "i");
        }
    }
}

fn cut(word: &mut String, suffix: &str) {
    if word.ends_with(suffix) {
        word.truncate(word.len() - suffix.len());
    }
}

/// Cuts the first of the suffixes off that `part` has.
fn cut_first(word: &mut String, part: &str, suffixes: &[&str]) -> bool {
    let found = suffixes.iter().find(|suffix| part.ends_with(**suffix));
    if let Some(suffix) = found.filter(|suffix| **suffix != "ira") {
        cut(word, suffix);
    }
    found.is_some()
}

fn derived(word: &mut String, r1: Option<&str>, r2: Option<&str>, rv: Option<&str>) -> bool {
    let len = word.chars().count();
    let is_in = |part: Option<&str>, suffix: &str| part.is_some_and(|part| part.ends_with(suffix));
    let fits = |(suffix, _, least): &&(&str, &str, usize)| {
        let is_there = match *suffix {
            "amente" => is_in(r1, suffix),
            "iras" | "ira" => {
                is_in(rv, suffix)
                    && word[..word.len() - suffix.len().min(word.len())].ends_with('e')
            }
            _ => is_in(r2, suffix),
        };
        len >= *least && word.ends_with(suffix) && is_there
    };
    let found = DERIVED.iter().find(fits);
    if let Some((suffix, replacement, _)) = found {
        word.truncate(word.len() - suffix.len());
        word.push_str(replacement);
    }
    found.is_some()
}

fn is_vowel(letter: char) -> bool {
    matches!(letter, 'a' | 'e' | 'i' | 'o' | 'u')
}

/// Returns the letters after the first consonant that follows a vowel; the last letter is excluded
/// from both.
fn after_vowel_and_consonant(letters: &[char]) -> Option<&[char]> {
    let last = letters.len().checked_sub(1)?;
    let vowel = letters[..last]
        .iter()
        .position(|letter| is_vowel(*letter))?;
    let consonant = letters[vowel..last]
        .iter()
        .position(|letter| !is_vowel(*letter))?;
    Some(&letters[vowel + consonant + 1..])
}

fn after_root(letters: &[char]) -> Option<&[char]> {
    let last = letters.len() - 1;
    let after = |wants_vowel: bool| {
        let at = letters
            .get(2..last)?
            .iter()
            .position(|letter| is_vowel(*letter) == wants_vowel)?;
        Some(&letters[at + 3..])
    };
    let second_is_consonant = last > 0 && !is_vowel(letters[1]);
    let both_are_vowels = last > 1 && is_vowel(letters[0]) && is_vowel(letters[1]);
    second_is_consonant
        .then(|| after(true))
        .flatten()
        .or_else(|| both_are_vowels.then(|| after(false)).flatten())
        .or_else(|| (last > 2).then(|| &letters[3..]))
}
