//! Bulgarian and Czech, by Preslav Nakov, and by Ljiljana Dolamic and Jacques Savoy; Latvian, by
//! Karlis Kreslins.

use super::word::Word;

pub(super) fn bulgarian(word: &mut Word) {
    if word.len() < 4 || word.cut_first(&[(5, &["ища"], 3)]) {
        return;
    }
    word.cut_first(&[
        (6, &["ият"], 3),
        (5, &["ът", "то", "те", "та", "ия"], 2),
        (4, &["ят"], 2),
    ]);
    bulgarian_plural(word);
    if word.len() > 3 {
        for endings in [&["я"][..], &["а", "о", "е"]] {
            if word.ends_in(endings) {
                word.cut(1);
            }
        }
    }
    if word.len() > 4 && word.ends("ен") {
        word.set_end(2, 'н');
        word.cut(1);
    }
    if word.len() > 5 && word.end(2) == 'ъ' {
        let last = word.end(1);
        word.set_end(2, last);
        word.cut(1);
    }
}

fn bulgarian_plural(word: &mut Word) {
    let len = word.len();
    if word.cut_first(&[(6, &["овци", "ове"], 3)]) {
    } else if len > 6 && word.ends("еве") {
        word.set_end(3, 'й');
        word.cut(2);
    } else if word.cut_first(&[(5, &["ища"], 3), (5, &["та"], 2)]) {
    } else if len > 5 && word.ends("ци") {
        word.cut(1);
        word.write_end("к");
    } else if len > 5 && word.ends("зи") {
        word.cut(1);
        word.write_end("г");
    } else if len > 5 && word.end(3) == 'е' && word.end(1) == 'и' {
        word.set_end(3, 'я');
        word.cut(1);
    } else if len > 4 && word.ends("си") {
        word.cut(1);
        word.write_end("х");
    } else {
        word.cut_first(&[(4, &["и"], 1)]);
    }
}

const CZECH_CASES: [(usize, &[&str], usize); 5] = [
    (7, &["atech"], 5),
    (6, &["ětem", "etem", "atům"], 4),
    (
        5,
        &[
            "ech", "ich", "ích", "ého", "ěmi", "emi", "ému", "ěte", "ete", "ěti", "eti", "ího",
            "iho", "ími", "ímu", "imu", "ách", "ata", "aty", "ých", "ama", "ami", "ové", "ovi",
            "ými",
        ],
        3,
    ),
    (
        4,
        &[
            "em", "es", "ém", "ím", "ům", "at", "ám", "os", "us", "ým", "mi", "ou",
        ],
        2,
    ),
    (
        3,
        &["a", "e", "i", "o", "u", "ů", "y", "á", "é", "í", "ý", "ě"],
        1,
    ),
];

pub(super) fn czech(word: &mut Word) {
    word.cut_first(&CZECH_CASES);
    word.cut_first(&[(5, &["ov", "in", "ův"], 2)]);
    if word.len() == 0 {
    } else if word.ends("čt") {
        word.write_end("ck");
    } else if word.ends("št") {
        word.write_end("sk");
    } else if matches!(word.end(1), 'c' | 'č') {
        word.write_end("k");
    } else if matches!(word.end(1), 'z' | 'ž') {
        word.write_end("h");
    } else if word.len() > 1 && word.end(2) == 'e' {
        let last = word.end(1);
        word.set_end(2, last);
        word.cut(1);
    } else if word.len() > 2 && word.end(2) == 'ů' {
        word.set_end(2, 'o');
    }
}

/// Endings, the number of vowels that the word must exceed, and whether they soften the letters
/// before them.
const LATVIAN: [(&str, usize, bool); 38] = [
    ("ajiem", 3, false),
    ("ajai", 3, false),
    ("ajam", 2, false),
    ("ajām", 2, false),
    ("ajos", 2, false),
    ("ajās", 2, false),
    ("iem", 2, true),
    ("ajā", 2, false),
    ("ais", 2, false),
    ("ai", 2, false),
    ("ei", 2, false),
    ("ām", 1, false),
    ("am", 1, false),
    ("ēm", 1, false),
    ("īm", 1, false),
    ("im", 1, false),
    ("um", 1, false),
    ("us", 1, true),
    ("as", 1, false),
    ("ās", 1, false),
    ("es", 1, false),
    ("os", 1, true),
    ("ij", 1, false),
    ("īs", 1, false),
    ("ēs", 1, false),
    ("is", 1, false),
    ("ie", 1, false),
    ("u", 1, true),
    ("a", 1, true),
    ("i", 1, true),
    ("e", 1, false),
    ("ā", 1, false),
    ("ē", 1, false),
    ("ī", 1, false),
    ("ū", 1, false),
    ("o", 1, false),
    ("s", 0, false),
    ("š", 0, false),
];

/// Softened consonants, and what they were. The first two only before `u`.
const LATVIAN_SOFT: [(&str, &str); 15] = [
    ("kš", "kst"),
    ("ņņ", "nn"),
    ("pj", "p"),
    ("bj", "b"),
    ("mj", "m"),
    ("vj", "v"),
    ("šņ", "sn"),
    ("žņ", "zn"),
    ("šļ", "sl"),
    ("žļ", "zl"),
    ("ļņ", "ln"),
    ("ļļ", "ll"),
    ("č", "c"),
    ("ļ", "l"),
    ("ņ", "n"),
];

pub(super) fn latvian(word: &mut Word) {
    let vowels = word
        .left()
        .iter()
        .filter(|letter| matches!(letter, 'a' | 'e' | 'i' | 'o' | 'u' | 'ā' | 'ī' | 'ē' | 'ū'))
        .count();
    let is_it = |(ending, more_than, _): &&(&str, usize, bool)| {
        vowels > *more_than && word.len() >= ending.chars().count() + 3 && word.ends(ending)
    };
    let Some((ending, _, softens)) = LATVIAN.iter().find(is_it) else {
        return;
    };
    word.cut(ending.chars().count());
    if !softens {
        return;
    }
    let from = if ending.starts_with('u') { 0 } else { 2 };
    if let Some((soft, hard)) = LATVIAN_SOFT[from..]
        .iter()
        .find(|(soft, _)| word.ends(soft))
    {
        word.cut(soft.chars().count());
        word.restore(hard.chars().count());
        word.write_end(hard);
    }
}
