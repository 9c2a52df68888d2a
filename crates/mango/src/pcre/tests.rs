use proptest::prelude::*;

use super::group::{LOOK_AROUND, RECURSION, VERB};
use super::*;

const BYTES_MAX: usize = 1 << 20;

fn compile(text: &str) -> Result<Pattern, String> {
    Pattern::compile(text, BYTES_MAX, BYTES_MAX, &mut ClassCosts::default())
}

fn translated(text: &str) -> Result<String, Refusal> {
    translate(text, &mut ClassCosts::default())
}

/// Patterns, subjects that match, subjects that do not: as Erlang's `re:run` returns, except for
/// the last two groups.
#[rustfmt::skip]
const CASES: &[(&str, &[&str], &[&str])] = &[
    // Ends and beginnings.
    ("a$", &["a", "a\n"], &["a\n\n", "ab", "a\nb"]),
    (r"a\Z", &["a", "a\n"], &["a\n\n"]),
    (r"\Aa\z", &["a"], &["a\n", "ba"]),
    ("^$", &["", "\n"], &["\n\n", "x"]),
    ("(^|,)b($|,)", &["b", "a,b\n", "b,c"], &["ab", "bc"]),
    ("a$b", &[], &["ab", "a\nb"]),
    ("(a$)*b", &["b", "ab"], &["a\n"]),
    ("(?m)^a$", &["b\na\nb", "a\n\n"], &["ab"]),
    ("((?m)a$)|b$", &["a\nx", "xb"], &["b\nx"]),
    (r"\Ga", &["ab"], &["ba"]),
    // Escapes.
    (r"^\<a\>$", &["<a>"], &["a"]),
    (r"^\_\-\#\ \&\~\/\@\%\é$", &["_-# &~/@%é"], &[]),
    (r"^\y\i\j$", &["yij"], &[]),
    (r"^\a\e\f\n\r\t\cA\c;$", &["\u{7}\u{1b}\u{c}\n\r\t\u{1}{"], &[]),
    (r"^\141\0\x62\x{63}\o{144}\x4\xg$", &["a\0bcd\u{4}\0g"], &[]),
    (r"(a)\12\8\81$", &["a\n881"], &[]),
    (r"^\Qa.b\E\Q\E+\E$", &["a.bb", "a.b"], &["axb", "a.ba.b"]),
    (r"\Qa[b", &["a[b"], &["ab"]),
    (r"\b{start", &["a{start"], &["start"]),
    (r"\ba\b", &["a", "-a-"], &["ba", "ab"]),
    (r"a\Bb", &["ab"], &["a b"]),
    (r"[[:<:]]a[[:>:]]", &["b a c"], &["ba", "ab"]),
    // Sets.
    (r"^\w\d\s\h\v\N\D\W\S\H\V$", &["_1\u{b}\t\nxx-xxx"], &["_1\n\n\nxx-xxx"]),
    (r"^.\N$", &["aa"], &["a\n", "\na"]),
    ("(?s)^.$", &["a", "\n"], &[]),
    (r"^a\R$", &["a\n", "a\r", "a\r\n", "a\u{b}"], &["ab", "a\n\r"]),
    (r"a\R\R", &["a\r\n\r\n", "a\n\n", "a\r\r"], &["a\r\nb"]),
    (r"a\R\n", &["a\r\n\n"], &["a\r\n"]),
    (r"^\pL\p{Lu}\P{Lu}\p{^Lu}\p{L&}\p{Xwd}$", &["aAaaA_"], &["aaAAaa"]),
    (r"(?i)\p{Lu}", &["A"], &["a"]),
    // Classes.
    ("^[]a]+$", &["]a"], &["b"]),
    ("^[^]a]+$", &["b["], &["]"]),
    ("^[a[b]c]$", &["[c]", "ac]"], &["a"]),
    ("^[a&&b~~c]+$", &["a&b~c"], &["-"]),
    ("^[+--a-]+$", &["+,-a"], &["."]),
    (r"^[\d-z]+$", &["1-z"], &["y"]),
    (r"^[a\-c]+$", &["a-c"], &["b"]),
    (r"^[\b\x41-\103\n]+$", &["\u{8}ABC\n"], &["b"]),
    (r"^[\w\W][^\W\d][\s.][^\H]$", &["\na.\t"], &["\n1.\t"]),
    (r"^[\Q^]-\Ea-c]+$", &["^]-abc"], &["d"]),
    (r"^[\E^a]$", &["b", "^"], &["a"]),
    (r"^[a\E-c][\Qx\E-z]$", &["by"], &["-y", "b-"]),
    (r"^[\R\B\z\8]+$", &["RBz8"], &["\n"]),
    ("^[[:alpha:][:^digit:]]+[[:alpha:]-z]$", &["a---"], &["1a", "aa1"]),
    ("^[[:alpha]+$", &["[:alph"], &["b"]),
    ("(?i)^[[:upper:]][[:lower:]][^b-d][x-z]$", &["aAaX"], &["aACX"]),
    // Braces and quantifiers.
    ("^{$", &["{"], &[]),
    ("^a{b{x}}{,2}{1,b{ 2}$", &["a{b{x}}{,2}{1,b{ 2}"], &[]),
    ("^x{2}y{2,}z{0,1}$", &["xxyyy", "xxyyz"], &["xyy", "xxy"]),
    ("^a+?b*?c??d{2}?$", &["aadd"], &["ad"]),
    ("(?U)^a+$", &["aa"], &["b"]),
    ("^(|a)(b||c)()*(d*)*$", &["", "ab", "cdd"], &["ba"]),
    ("", &["", "a"], &[]),
    // Groups and flags.
    ("^(?<n>a)(?P<m>b)(?'k'c)(?:d)(?|(e)|(f))$", &["abcde", "abcdf"], &["abcd"]),
    ("^a(?#)b(?# + ] )+c$", &["abbc"], &["ac"]),
    ("^(a(?i)b|c)d$", &["aBd", "Cd"], &["Abd", "aBD"]),
    ("^(?i:a(?-i)b)c(?i)(?-i:d)e$", &["AbcdE"], &["ABcde", "Abcde\nE"]),
    ("(?x)^ a b # comment (\n c + [ ]\\ d\\Q e\\E $", &["abcc  d e"], &["a b c  d e"]),
    ("(?xx-x)a b", &["a b"], &["ab"]),
    ("(?i)^k$", &["K"], &["\u{212a}"]),
    ("(*LF)(*UTF8)(?i)^é[à-è]k$", &["ÉÈK"], &["éak"]),
    (r"(*UTF8)(*UCP)^\w\d\s[[:alpha:]][^\W]$", &["é٣\u{2003}日_"], &["é٣ 1-"]),
    (r"(*UTF8)(*UCP)^\bé\b", &["é", "é-"], &["éa"]),
    // Characters, where Erlang has bytes.
    ("^.[é日]é?$", &["éé", "日日é"], &["é", "e日日"]),
    (r"^\w\b", &["a", "aé"], &["é"]),
    (r"\d|\s", &[], &["٣", "\u{2003}", "\u{a0}"]),
    (r"^\x{e9}\x{65e5}\xe9$", &["é日é"], &[]),
    (r"[\x80-\xff]", &["é", "日"], &["ascii"]),
    (r"^[^\x00-\x7f\n]$", &["é", "日"], &["a"]),
    (r"^\h\v$", &["\u{a0}\u{2028}"], &[]),
    // A pattern after an end does not see the newline that the end has consumed; `^` also matches
    // at the end of the last line.
    (r"a$\n", &[], &["a\n"]),
    ("(?m)^$", &["a\n\nb", "a\n"], &["a"]),
];

const REFUSED: &[(&str, Refusal)] = &[
    ("(", UNCLOSED_GROUP),
    ("(?i", UNCLOSED_GROUP),
    ("a)", "unopened group"),
    ("[a", "unclosed character class"),
    ("[]", "unclosed character class"),
    ("*a", NOTHING_TO_REPEAT),
    ("(+)", NOTHING_TO_REPEAT),
    ("a|{2}", NOTHING_TO_REPEAT),
    ("a**", NOTHING_TO_REPEAT),
    ("a{2}{3}", NOTHING_TO_REPEAT),
    ("^*", NOTHING_TO_REPEAT),
    (r"\b+", NOTHING_TO_REPEAT),
    ("(?i)?", NOTHING_TO_REPEAT),
    ("a{3,2}", "numbers out of order in {} quantifier"),
    ("a{65536}", "number too big in {} quantifier"),
    ("a{99999999999}", "number too big in {} quantifier"),
    ("a++", "possessive quantifiers are not supported"),
    ("a{2}+", "possessive quantifiers are not supported"),
    ("(?x)a* +", "possessive quantifiers are not supported"),
    ("(?>a)", "atomic groups are not supported"),
    ("(?=a)", LOOK_AROUND),
    ("(?<!a)", LOOK_AROUND),
    (r"(a)\1", BACK_REFERENCE),
    (r"(?<n>a)\k<n>", BACK_REFERENCE),
    (r"(()()()()()()())\8", BACK_REFERENCE),
    ("(?P=n)", BACK_REFERENCE),
    ("(a(?1))", RECURSION),
    ("(?R)", RECURSION),
    ("(?-1)", RECURSION),
    ("(?(1)a|b)", "conditional groups are not supported"),
    (r"a\Kb", r"\K is not supported"),
    (r"\X", r"\X is not supported"),
    (r"\u0041", r"\L, \l, \U and \u are not supported"),
    (r"\N{LATIN}", r"\N{name} is not supported"),
    (r"[\N]", r"\N is not supported in a class"),
    ("(?z)", "unrecognized character after (?"),
    ("(?<1a>b)", "invalid group name"),
    ("(?#a", "unclosed comment"),
    ("[z-a]", "range out of order in character class"),
    (r"[a-\d]", "invalid range in character class"),
    ("[[:letter:]]", "unknown POSIX class name"),
    (
        "[:alpha:]",
        "POSIX named classes are supported only within a class",
    ),
    (r"\x{110000}", class::INVALID_CODE),
    (r"\x{d800}", class::INVALID_CODE),
    (r"\o{8}", class::INVALID_CODE),
    (r"\x{41", class::INVALID_CODE),
    (r"a\", r"\ at end of pattern"),
    ("(*CR)a", VERB),
    ("a(*UTF8)", VERB),
];

#[test]
fn patterns_match_what_they_match_in_pcre() {
    for (text, matching, others) in CASES {
        let pattern = compile(text).unwrap();
        assert_eq!(pattern.as_str(), *text);
        let is_match = |subject: &&&str| pattern.is_match(subject);
        let missed: Vec<_> = matching.iter().filter(|s| !is_match(s)).collect();
        let wrong: Vec<_> = others.iter().filter(is_match).collect();
        assert!(
            missed.is_empty() && wrong.is_empty(),
            "{pattern:?}: {missed:?} {wrong:?}"
        );
    }
}

#[test]
fn what_cannot_be_matched_is_refused_with_the_reason() {
    for (text, reason) in REFUSED {
        assert_eq!(translated(text), Err(*reason), "{text}");
    }
}

#[test]
fn a_large_pattern_is_refused() {
    let refusal = |text: &str| compile(text).unwrap_err();
    assert!(refusal("(a{1000}){1000}").contains("size limit"));
    assert!(refusal(&"a".repeat(PATTERN_BYTES_MAX + 1)).contains("longer than"));
    let groups = ["(", ")"].map(|bracket| bracket.repeat(PATTERN_BYTES_MAX / 2));
    assert!(refusal(&groups.concat()).contains("nest"));
}

/// Text in which special characters are frequent.
fn pattern() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        prop::sample::select(
            [r"[](){}*+?|^$.\-&~#:<>=!'_,012xXkKpPnQEiéſ", "\n "]
                .concat()
                .chars()
                .collect::<Vec<_>>()
        )
        .prop_map(String::from),
        prop::sample::select(
            [
                r"\Q", r"\E", r"\p{", r"\x{", r"\R", "[^", "[:", ":]", "(?", "(?#", "(?x)",
                "(*UTF8)"
            ]
            .as_slice()
        )
        .prop_map(String::from),
        r"\\[ -~]",
        "(?s).",
    ];
    prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn any_pattern_is_compiled_or_refused(text in pattern(), subject in "(?s).{0,8}") {
        let translated = translated(&text);
        if let Ok(translated) = &translated {
            prop_assert!(translated.len() <= 64 * text.len());
        }
        match (compile(&text), translated) {
            (Ok(pattern), _) => {
                pattern.is_match(&subject);
            }
            (Err(reason), Err(refusal)) => prop_assert_eq!(reason, refusal),
            (Err(reason), Ok(translated)) => prop_assert!(
                ["size limit", "Unicode property"].iter().any(|known| reason.contains(known)),
                "{}: {}", translated, reason,
            ),
        }
    }
}

#[test]
fn caseless_classes_are_bounded_before_they_are_compiled() {
    for class in ["[ -\u{2a943}]", r"[\W\w]"] {
        let many = format!("(*UTF8)(?i){}", class.repeat(5_000));
        let refused = compile(&many).unwrap_err();
        assert_eq!(refused, "too many characters in caseless classes");
        let few = format!("(*UTF8)(?i)^{}$", class.repeat(2));
        assert!(compile(&few).unwrap().is_match("aB"));
    }
    let ascii = format!("(*UTF8)(?i)^{}$", r"[a-z\d]".repeat(500));
    assert!(compile(&ascii).is_ok());
}

#[test]
fn unicode_classes_are_bounded_before_they_are_compiled() {
    for class in [r"\w", r"\p{Lu}", r"[[:alpha:]]", r"[^\w]"] {
        let many = format!("(*UCP){}", format!("{class}{{0}}").repeat(2_000));
        assert_eq!(compile(&many).unwrap_err(), "too many Unicode classes");
        let few = format!("(*UCP)a{}$", format!("{class}{{0}}").repeat(400));
        assert!(compile(&few).unwrap().is_match("a"));
    }
    let small = format!("(*UCP)^{}$", r"\d{0}".repeat(5_000));
    assert!(compile(&small).is_ok());
}

#[test]
fn long_translations_are_refused_before_they_are_compiled() {
    for text in ["$", r"\h", r"\R"] {
        let many = text.repeat(PATTERN_BYTES_MAX / text.len());
        let refused = compile(&many).unwrap_err();
        assert_eq!(refused, "regular expression is too long");
    }
    let literal = translated(&"_".repeat(PATTERN_BYTES_MAX)).unwrap();
    assert_eq!(literal.len(), TRANSLATION_BYTES_MAX);
}

#[test]
fn the_costs_of_classes_are_those_of_the_whole_selector() {
    let selector = |pattern: &str, count: usize| {
        let condition = serde_json::json!({"a": {"$regex": pattern}});
        let conditions = vec![condition; count];
        crate::Selector::parse(&serde_json::json!({"$or": conditions}))
    };
    let caseless = format!("(*UTF8)(?i){}", "[ -\u{1e943}]{0}".repeat(20));
    let unicode = format!("(*UCP){}", r"\w{0}".repeat(400));
    for pattern in [caseless, unicode] {
        assert!(selector(&pattern, 1).is_ok());
        let refused = selector(&pattern, 2).err();
        assert!(matches!(
            refused,
            Some(crate::SelectorError::BadRegex { .. })
        ));
    }
}

#[test]
fn texts_are_read_with_stops_as_without() {
    let mut read = 0;
    for (pattern, matching, others) in CASES {
        let pattern = compile(pattern).unwrap();
        let automaton = pattern.automaton().unwrap();
        for subject in matching.iter().chain(*others) {
            if let Some(matches) = with_stops(automaton, subject.as_bytes()) {
                assert_eq!(matches, pattern.is_match(subject), "{pattern:?} {subject}");
                read += 1;
            }
        }
    }
    assert!(read > 150, "only {read} were read");
}

#[test]
fn long_texts_are_read_too() {
    let pattern = compile("b(a|c){1,20}d$").unwrap();
    let long = "acb".repeat(100_000);
    assert!(!pattern.is_match(&long));
    assert!(pattern.is_match(&format!("{long}acad")));
    // Beyond ASCII the automaton stops, and the other engine does not accept a text of this length.
    let of_words = compile(r"(*UCP)\bb\b").unwrap();
    assert!(of_words.is_match(&format!("é {}b", "aé ".repeat(5000))));
    let judged = crate::work::bounded(|| of_words.is_match(&"é ".repeat(50_000)));
    assert_eq!(judged, Err(crate::work::TookTooLong));
}

#[test]
fn the_memory_of_an_expression_is_that_of_its_automata() {
    let bytes = |text: &str| {
        let pattern = compile(text).unwrap();
        // The automaton for long texts is within the size that is counted for it.
        assert!(pattern.automaton().is_some(), "{text}");
        pattern.memory_bytes()
    };
    for small in ["", "a", "^a", "^[a-z]+$", "a|b|word", "(?i)word"] {
        assert!(bytes(small) < 64 << 10, "{small}: {}", bytes(small));
    }
    // A state takes 24 bytes, and there are an automaton and one that reads backward.
    for states in [1_000, 3_000, 9_000] {
        let large = bytes(&format!("(?:a{{1000}}){{{}}}b", states / 1000));
        assert!(large > 2 * 24 * states, "{states}: {large}");
        assert!(large < 12 * 24 * states, "{states}: {large}");
    }
    let words: Vec<String> = (0..5_000)
        .zip(('a'..='z').cycle())
        .map(|(n, letter)| format!("{letter}{n}"))
        .collect();
    let words = words.join("|");
    assert!((words.len()..100 * words.len()).contains(&bytes(&words)));
}
