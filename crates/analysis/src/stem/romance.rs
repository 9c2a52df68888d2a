//! French, Italian, Portuguese and Spanish: the light stemmers by Jacques Savoy.

use super::word::Word;

/// Vowels without the accents of Spanish and Italian.
fn plain_vowel(letter: char) -> char {
    match letter {
        'à' | 'á' | 'â' | 'ä' => 'a',
        'ò' | 'ó' | 'ô' | 'ö' => 'o',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        other => other,
    }
}

pub(super) fn spanish(word: &mut Word) {
    if word.len() < 5 {
        return;
    }
    word.map(plain_vowel);
    match word.end(1) {
        'o' | 'a' | 'e' => word.cut(1),
        's' if word.ends("eses") => word.cut(2),
        's' if word.ends("ces") => {
            word.set_end(3, 'z');
            word.cut(2);
        }
        's' if matches!(word.end(2), 'o' | 'a' | 'e') => word.cut(2),
        _ => {}
    }
}

pub(super) fn italian(word: &mut Word) {
    if word.len() < 6 {
        return;
    }
    word.map(plain_vowel);
    match (word.end(2), word.end(1)) {
        ('i' | 'h', 'e' | 'i') | ('i', 'a' | 'o') => word.cut(2),
        (_, 'e' | 'i' | 'a' | 'o') => word.cut(1),
        _ => {}
    }
}

pub(super) fn portuguese(word: &mut Word) {
    if word.len() < 4 {
        return;
    }
    portuguese_suffix(word);
    if word.len() > 3 && word.end(1) == 'a' {
        portuguese_feminine(word);
    }
    if word.len() > 4 && matches!(word.end(1), 'e' | 'a' | 'o') {
        word.cut(1);
    }
    word.map(|letter| match letter {
        'ã' => 'a',
        'õ' => 'o',
        'ç' => 'c',
        other => plain_vowel(other),
    });
}

fn portuguese_suffix(word: &mut Word) {
    let len = word.len();
    if len > 4 && word.ends("es") && matches!(word.end(3), 'r' | 's' | 'l' | 'z') {
        word.cut(2);
    } else if len > 3 && word.ends("ns") {
        word.set_end(2, 'm');
        word.cut(1);
    } else if len > 4 && word.ends_in(&["eis", "éis"]) {
        word.cut(1);
        word.write_end("el");
    } else if len > 4 && word.ends("ais") {
        word.cut(1);
        word.write_end("l");
    } else if len > 4 && word.ends("óis") {
        word.cut(1);
        word.write_end("ol");
    } else if len > 4 && word.ends("is") {
        word.write_end("l");
    } else if len > 3 && word.ends_in(&["ões", "ães"]) {
        word.cut(1);
        word.write_end("ão");
    } else if len > 6 && word.ends("mente") {
        word.cut(5);
    } else if len > 3 && word.end(1) == 's' {
        word.cut(1);
    }
}

fn portuguese_feminine(word: &mut Word) {
    if word.len() > 7 && word.ends_in(&["inha", "iaca", "eira"]) {
        word.write_end("o");
    } else if word.len() <= 6 {
    } else if word.ends_in(&["osa", "ica", "ida", "ada", "iva", "ama"]) {
        word.write_end("o");
    } else if word.ends("ona") {
        word.cut(1);
        word.write_end("ão");
    } else if word.ends("ora") {
        word.cut(1);
    } else if word.ends("esa") {
        word.set_end(3, 'ê');
        word.cut(1);
    } else if word.ends("na") {
        word.write_end("o");
    }
}

/// Endings, the length that a word has to exceed, how much is cut, and what is then written over
/// its end.
const FRENCH: [(&str, usize, usize, &str); 13] = [
    ("issement", 9, 6, "r"),
    ("issant", 8, 4, "r"),
    ("ement", 6, 4, ""),
    ("ficatrice", 11, 5, "er"),
    ("ficateur", 10, 4, "er"),
    ("catrice", 9, 3, "que\0"),
    ("cateur", 8, 2, "quer"),
    ("atrice", 8, 4, "er"),
    ("ateur", 7, 3, "er"),
    ("teuse", 7, 2, "r"),
    ("teur", 6, 1, "r"),
    ("ère", 8, 1, "e\0"),
    ("ive", 7, 1, "f"),
];

pub(super) fn french(word: &mut Word) {
    if word.len() > 5 && word.end(1) == 'x' {
        if word.end(3) == 'a' && word.end(2) == 'u' && word.end(4) != 'e' {
            word.set_end(2, 'l');
        }
        word.cut(1);
    }
    for letter in ['x', 's'] {
        if word.len() > 3 && word.end(1) == letter {
            word.cut(1);
        }
    }
    french_derivation(word);
    french_norm(word);
}

/// Overwrites the end; `\0` leaves a letter as it is.
fn overwrite(word: &mut Word, ending: &str) {
    let count = ending.chars().count();
    for (at, letter) in ending
        .chars()
        .enumerate()
        .filter(|(_, letter)| *letter != '\0')
    {
        word.set_end(count - at, letter);
    }
}

fn french_replacement(word: &mut Word, entries: &[(&str, usize, usize, &str)]) -> bool {
    for (ending, more_than, count, replacement) in entries {
        if word.len() > *more_than && word.ends(ending) {
            word.cut(*count);
            overwrite(word, replacement);
            return true;
        }
    }
    false
}

fn french_derivation(word: &mut Word) {
    if word.len() > 6 && word.ends("ement") && !(word.len() > 9 && word.ends("issement")) {
        word.cut(4);
        if word.len() > 3 && word.ends("ive") {
            word.cut(1);
            word.write_end("f");
        }
        return;
    }
    if french_replacement(word, &FRENCH[..9]) {
        return;
    }
    if word.len() > 6 && word.ends("trice") {
        word.cut(1);
        word.write_end("eur");
    }
    if word.len() > 5 && word.ends("ième") {
        return word.cut(4);
    }
    if french_replacement(word, &FRENCH[9..11]) {
        return;
    }
    if word.len() > 5 && word.ends("euse") {
        return word.cut(2);
    }
    if french_replacement(word, &FRENCH[11..]) {
        return;
    }
    if word.len() > 4 && word.ends_in(&["folle", "molle"]) {
        word.cut(2);
        return word.write_end("u");
    }
    if word.cut_first(&[(9, &["nnelle"], 5), (9, &["nnel"], 3)]) {
        return;
    }
    if word.len() > 4 && word.ends("ète") {
        word.cut(1);
        word.set_end(2, 'e');
    }
    if word.len() > 8 && word.ends("ique") {
        word.cut(4);
    }
    if word.cut_first(&[(8, &["esse"], 3), (7, &["inage"], 3)]) {
        return;
    }
    if word.len() > 9 && word.ends("isation") {
        word.cut(7);
        if word.len() > 5 && word.ends("ual") {
            word.set_end(2, 'e');
        }
        return;
    }
    word.cut_first(&[(9, &["isateur"], 7), (8, &["ation"], 5), (8, &["ition"], 5)]);
}

fn french_norm(word: &mut Word) {
    if word.len() > 4 {
        word.map(|letter| match letter {
            'à' | 'á' | 'â' => 'a',
            'ô' => 'o',
            'è' | 'é' | 'ê' => 'e',
            'ù' | 'û' => 'u',
            'î' => 'i',
            'ç' => 'c',
            other => other,
        });
        let mut at = 1;
        while at < word.len() {
            if word.left()[at] == word.left()[at - 1]
                && crate::characters::is_letter(word.left()[at])
            {
                word.remove(at);
            } else {
                at += 1;
            }
        }
    }
    if word.len() > 4 && word.ends("ie") {
        word.cut(2);
    }
    if word.len() > 4 {
        for letter in ['r', 'e', 'e'] {
            if word.end(1) == letter {
                word.cut(1);
            }
        }
        if word.end(1) == word.end(2) && crate::characters::is_letter(word.end(1)) {
            word.cut(1);
        }
    }
}
