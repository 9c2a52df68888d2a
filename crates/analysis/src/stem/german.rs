//! German: the light stemmer by Jacques Savoy.

use super::word::Word;

pub(super) fn light(word: &mut Word) {
    word.map(|letter| match letter {
        'ä' | 'à' | 'á' | 'â' => 'a',
        'ö' | 'ò' | 'ó' | 'ô' => 'o',
        'ï' | 'ì' | 'í' | 'î' => 'i',
        'ü' | 'ù' | 'ú' | 'û' => 'u',
        other => other,
    });
    if !word.cut_first(&[
        (5, &["ern"], 3),
        (4, &["em", "en", "er", "es"], 2),
        (3, &["e"], 1),
    ]) && word.len() > 3
        && word.end(1) == 's'
        && may_stand_before_s(word.end(2))
    {
        word.cut(1);
    }
    if !word.cut_first(&[(5, &["est"], 3), (4, &["er", "en"], 2)])
        && word.len() > 4
        && word.ends("st")
        && may_stand_before_s(word.end(3))
    {
        word.cut(2);
    }
}

fn may_stand_before_s(letter: char) -> bool {
    matches!(
        letter,
        'b' | 'd' | 'f' | 'g' | 'h' | 'k' | 'l' | 'm' | 'n' | 't'
    )
}
