use proptest::prelude::*;

use super::*;

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Part(Vec<(&'static str, String)>),
    Content(Vec<u8>),
    PartEnd,
    End,
}

const NAMES: [&str; 3] = ["content-type", "content-disposition", "content-length"];

/// Pushes the pieces, and enters every multipart when `nested`.
fn read(pieces: &[&[u8]], nested: bool) -> Result<Vec<Seen>, MultipartError> {
    let mut parser = Parser::new("b", Limits::default())?;
    let mut seen = Vec::new();
    for piece in pieces {
        parser.push(piece);
        while let Some(event) = parser.next_event()? {
            match event {
                Event::Part(headers) => {
                    let value = |&name: &&'static str| Some((name, headers.get(name)?.to_owned()));
                    seen.push(Seen::Part(NAMES.iter().filter_map(value).collect()));
                    let content_type = headers.content_type();
                    if let Some(boundary) = content_type.as_ref().and_then(ContentType::boundary)
                        && nested
                    {
                        parser.enter(boundary)?;
                    }
                }
                Event::Data(data) => match seen.last_mut() {
                    Some(Seen::Content(content)) => content.extend_from_slice(&data),
                    _ => seen.push(Seen::Content(data.to_vec())),
                },
                Event::PartEnd => seen.push(Seen::PartEnd),
                Event::End => seen.push(Seen::End),
            }
        }
    }
    parser.finish()?;
    Ok(seen)
}

/// Returns the events of `body`, which must be the same wherever it is split in two, and byte by
/// byte.
fn read_cut_everywhere(body: &[u8], nested: bool) -> Result<Vec<Seen>, MultipartError> {
    let whole = read(&[body], nested);
    for at in 0..=body.len() {
        assert_eq!(
            read(&[&body[..at], &body[at..]], nested),
            whole,
            "cut at {at}"
        );
    }
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(read(&bytes, nested), whole, "byte by byte");
    whole
}

fn part(content_type: &str) -> Seen {
    match content_type {
        "" => Seen::Part(vec![]),
        _ => Seen::Part(vec![("content-type", content_type.to_owned())]),
    }
}

fn content(content: &[u8]) -> Seen {
    Seen::Content(content.to_vec())
}

#[test]
fn parts_are_told_from_each_other_wherever_the_input_is_cut() {
    let body = b"preamble\r\n--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b  \t\r\n\r\n\r\n\r\n-\r\n--\r\n--bc\r\n--b --\r\n--b--\r\nepilogue";
    let seen = read_cut_everywhere(body, false).unwrap();
    let expected = [
        part("application/json"),
        content(b"{}"),
        Seen::PartEnd,
        part(""),
        content(b"\r\n\r\n-\r\n--\r\n--bc\r\n--b --"),
        Seen::PartEnd,
        Seen::End,
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_part_may_be_empty_with_or_without_a_line_break_of_its_own() {
    for body in [
        "--b\r\nContent-Type: a/b\r\n\r\n\r\n--b--",
        "--b\r\nContent-Type: a/b\r\n\r\n--b--",
    ] {
        let seen = read_cut_everywhere(body.as_bytes(), false).unwrap();
        assert_eq!(seen, [part("a/b"), Seen::PartEnd, Seen::End]);
    }
}

#[test]
fn a_body_without_parts_is_one() {
    assert_eq!(read_cut_everywhere(b"--b--", false).unwrap(), [Seen::End]);
}

#[test]
fn multiparts_within_multiparts_are_read_when_entered_and_else_left_as_they_are() {
    let inner = "--i\r\n\r\n1\r\n--b\r\nnot\r\n--i\r\n\r\n2\r\n--i--\r\nignored";
    let inner = inner.replace("--b\r\n", "--bb\r\n");
    let body = format!(
        "--b\r\nContent-Type: multipart/related; boundary=\"i\"\r\n\r\n{inner}\r\n--b\r\nContent-Type: a/b\r\n\r\n3\r\n--b--"
    );
    let kind = part("multipart/related; boundary=\"i\"");
    let seen = read_cut_everywhere(body.as_bytes(), true).unwrap();
    let expected = [
        kind,
        part(""),
        content(b"1\r\n--bb\r\nnot"),
        Seen::PartEnd,
        part(""),
        content(b"2"),
        Seen::PartEnd,
        Seen::End,
        Seen::PartEnd,
        part("a/b"),
        content(b"3"),
        Seen::PartEnd,
        Seen::End,
    ];
    assert_eq!(seen, expected);
    let flat = read_cut_everywhere(body.as_bytes(), false).unwrap();
    assert_eq!(flat[1], content(inner.as_bytes()));
}

#[test]
fn a_body_that_ends_too_early_is_an_error() {
    let body =
        b"--b\r\nContent-Type: multipart/mixed; boundary=i\r\n\r\n--i\r\n\r\nx\r\n--i--\r\n--b--";
    for end in 0..body.len() {
        assert_eq!(
            read(&[&body[..end]], true),
            Err(MultipartError::Truncated),
            "{end}"
        );
    }
    assert!(read(&[body], true).is_ok());
    let open = b"--b\r\nContent-Type: multipart/mixed; boundary=i\r\n\r\n--i\r\n\r\nx\r\n--b--";
    assert_eq!(
        read_cut_everywhere(open, true),
        Err(MultipartError::Truncated)
    );
}

#[test]
fn headers_have_limits() {
    let long = format!("--b\r\nA: {}\r\n\r\n\r\n--b--", "x".repeat(20_000));
    assert_eq!(
        read(&[long.as_bytes()], false),
        Err(MultipartError::HeadersTooLong)
    );
    let endless = "x".repeat(1 << 20);
    assert_eq!(
        read(&[b"--b\r\n", endless.as_bytes()], false),
        Err(MultipartError::HeadersTooLong)
    );
    let many = format!("--b\r\n{}\r\n\r\n--b--", "a: b\r\n".repeat(65));
    assert_eq!(
        read(&[many.as_bytes()], false),
        Err(MultipartError::HeadersTooLong)
    );
    for bad in ["no colon", ": no name", "a b: c", " continues nothing"] {
        let body = format!("--b\r\n{bad}\r\n\r\n\r\n--b--");
        assert_eq!(
            read_cut_everywhere(body.as_bytes(), false),
            Err(MultipartError::Header)
        );
    }
}

#[test]
fn nesting_has_a_limit() {
    let mut parser = Parser::new("b", Limits::default()).unwrap();
    assert_eq!(parser.enter("x"), Err(MultipartError::NotAtPart));
    parser.push(b"--b\r\n\r\n--c\r\n\r\n");
    assert!(matches!(parser.next_event(), Ok(Some(Event::Part(_)))));
    parser.enter("c").unwrap();
    parser.push(b"x");
    parser.push(b"--d\r\n\r\n");
    assert!(matches!(parser.next_event(), Ok(Some(Event::Part(_)))));
    assert_eq!(parser.depth(), 2);
    assert_eq!(parser.enter("d"), Err(MultipartError::TooDeep));
}

#[test]
fn boundaries_have_rules() {
    for bad in ["", "a\r\nb", &"x".repeat(71)] {
        assert!(Parser::new(bad, Limits::default()).is_err(), "{bad:?}");
        assert!(Writer::new(bad).is_err() || bad.contains('\n'), "{bad:?}");
    }
}

#[test]
fn parameters_may_be_quoted_escaped_and_surrounded_by_blanks() {
    let read = |value| {
        let content_type = ContentType::parse(value)?;
        content_type.boundary().map(str::to_owned)
    };
    assert_eq!(
        read("multipart/related;boundary=abc").as_deref(),
        Some("abc")
    );
    assert_eq!(
        read("Multipart/Related ; type=\"a/b;c=d\" ; Boundary = \"a \\\"b\\\\\" ; x").as_deref(),
        Some("a \"b\\")
    );
    assert_eq!(
        read("multipart/mixed; junk; boundary=\"open").as_deref(),
        Some("open")
    );
    assert_eq!(read("text/plain; boundary=abc"), None);
    assert_eq!(read("multipart; boundary=abc"), None);
    assert_eq!(read("multipart/mixed; =; ;;boundary"), None);
}

#[test]
fn file_names_are_read_in_every_form() {
    let name = |value: &str| {
        let block = format!("Content-Disposition: {value}");
        Headers::parse(block.as_bytes(), &Limits::default())
            .unwrap()
            .filename()
    };
    assert_eq!(name("attachment; filename=a.txt").as_deref(), Some("a.txt"));
    assert_eq!(
        name("attachment; filename=\"ü/\\\"b\\\\.txt\"").as_deref(),
        Some("ü/\"b\\.txt")
    );
    assert_eq!(
        name("attachment; filename=x; filename*=UTF-8''%c3%bc%2Fb").as_deref(),
        Some("ü/b")
    );
    assert_eq!(
        name("attachment; filename=x; filename*=UTF-8''%c3%").as_deref(),
        Some("x")
    );
    assert_eq!(name("attachment"), None);
}

#[test]
fn a_form_field_has_a_name_and_a_file_two() {
    let names = |value: &str| {
        let block = format!("Content-Disposition: {value}");
        let headers = Headers::parse(block.as_bytes(), &Limits::default()).unwrap();
        (headers.form_field(), headers.filename())
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(names("form-data; name=\"_doc\""), (some("_doc"), None));
    assert_eq!(
        names("Form-Data; Name=a; FileName=\"\""),
        (some("a"), some(""))
    );
    assert_eq!(names("form-data; filename=x"), (None, some("x")));
    assert_eq!(names("attachment; name=a"), (None, None));
}

fn pieces(body: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    at.extend([0, body.len()]);
    at.sort_unstable();
    at.windows(2)
        .map(|ends| body[ends[0]..ends[1]].to_vec())
        .collect()
}

fn tricky_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\r\n--b".to_vec()),
        Just(b"--".to_vec()),
        Just(b"--b\r\n".to_vec()),
        Just(b"a:b\r\n\r\n".to_vec()),
        Just(b"Content-Type: multipart/mixed; boundary=c\r\n\r\n".to_vec()),
        Just(b"\r\n--c\r\n".to_vec()),
        Just(b"--c--".to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_give_the_same_answer_however_they_are_cut(body in tricky_bytes(), cuts: Vec<prop::sample::Index>) {
        let pieces = pieces(&body, &cuts);
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(read(&pieces, true), read(&[&body], true));
    }

    #[test]
    fn what_is_written_is_read(
        parts in prop::collection::vec((".{0,20}", tricky_bytes()), 0..4),
        cuts: Vec<prop::sample::Index>,
    ) {
        let boundary = "0123456789abcdef";
        let mut writer = Writer::new(boundary).unwrap();
        let mut body = Vec::new();
        for (name, content) in &parts {
            let head = PartHead {
                content_type: "text/plain",
                filename: Some(name),
                length: Some(content.len() as u64),
                encoding: None,
                doc: None,
            };
            writer.part(&head, &mut body);
            body.extend_from_slice(content);
        }
        writer.end(&mut body);
        let mut parser = Parser::new(boundary, Limits::default()).unwrap();
        let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
        for piece in pieces(&body, &cuts) {
            parser.push(&piece);
            while let Some(event) = parser.next_event().unwrap() {
                match event {
                    Event::Part(headers) => seen.push((headers.filename().unwrap(), Vec::new())),
                    Event::Data(data) => seen.last_mut().unwrap().1.extend_from_slice(&data),
                    Event::PartEnd | Event::End => {}
                }
            }
        }
        parser.finish().unwrap();
        let plain = |name: &str| name.replace(['\r', '\n', '\0'], " ");
        let expected: Vec<(String, Vec<u8>)> = parts.iter().map(|(n, c)| (plain(n), c.clone())).collect();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn a_preamble_has_an_end() {
    let piece = [b'x'; 64 << 10];
    let mut pieces: Vec<&[u8]> = vec![&piece; 15];
    pieces.push(b"\r\n--b\r\n\r\n1\r\n--b--");
    let seen = read(&pieces, false).unwrap();
    assert_eq!(seen, [part(""), content(b"1"), Seen::PartEnd, Seen::End]);
    let endless: Vec<&[u8]> = vec![&piece; 20];
    assert_eq!(read(&endless, false), Err(MultipartError::PreambleTooLong));
}
