//! Measures how fast documents are projected: ns per document, GB/s of document text, and the ratio
//! to hand-written code for the same members. `cargo run --release -p projection --example
//! projection_bench`

use std::{hint::black_box, time::Instant};

use projection::Projection;

const MEMBERS: &[u8] =
    br#""_id":"6e1295ed6c29495e54cc05947f18c8af","_rev":"1-967a00dff5e02add41819138abb3284d""#;
const RUNS: usize = 7;

struct Case {
    name: &'static str,
    map: &'static str,
    body: String,
    by_hand: fn(&[u8], &[u8], &mut Vec<u8>),
}

fn cases() -> [Case; 5] {
    [
        Case {
            name: "300 bytes, 2 members",
            map: "function (doc) { if (doc.type === 'person') emit(doc.name, null) }",
            body: small(),
            by_hand: |_, body, out| top_level(body, &[b"type", b"name"], out),
        },
        Case {
            name: "16 KB nested, 3 members",
            map: "function (doc) { if (doc.type) emit([doc.date, doc.total], 1) }",
            body: large(),
            by_hand: |_, body, out| top_level(body, &[b"type", b"date", b"total"], out),
        },
        Case {
            name: "16 KB nested, 3 members, first ones",
            map: "function (doc) { if (doc.type) emit([doc.date, doc.customer.name], 1) }",
            body: large(),
            by_hand: |_, body, out| top_level(body, &[b"type", b"date", b"customer"], out),
        },
        Case {
            name: "16 KB nested, 3 members, prices of all items",
            map: "function (doc) { if (doc.type) for (var i in doc.items) emit([doc.date, doc.total], doc.items[i].price) }",
            body: large(),
            by_hand: prices,
        },
        Case {
            name: "16 KB nested, one member that is not there",
            map: "function (doc) { if (doc.missing) emit(doc._id, 1) }",
            body: large(),
            by_hand: |_, body, out| top_level(body, &[b"missing"], out),
        },
    ]
}

fn main() {
    let cases = cases();
    println!(
        "{:<48} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "bytes", "taken", "ns/doc", "GB/s", "by hand"
    );
    for case in &cases {
        let projection = Projection::analyse(case.map).expect("the function is followed");
        let body = case.body.as_bytes();
        let mut out = Vec::new();
        projection.project(MEMBERS, body, &mut out);
        let taken = out.len();
        let ns = measure(|out| projection.project(black_box(MEMBERS), black_box(body), out));
        let by_hand = measure(|out| (case.by_hand)(black_box(MEMBERS), black_box(body), out));
        println!(
            "{:<48} {:>8} {:>8} {:>8.0} {:>8.2} {:>7.2}x",
            case.name,
            MEMBERS.len() + body.len(),
            taken,
            ns,
            (MEMBERS.len() + body.len()) as f64 / ns,
            by_hand / ns,
        );
    }
    let start = Instant::now();
    for _ in 0..1000 {
        black_box(Projection::analyse(black_box(cases[3].map))).expect("the function is followed");
    }
    println!(
        "analysing a function: {:.1} µs",
        start.elapsed().as_secs_f64() * 1e3
    );
}

/// Returns the median of the runs, ns a call.
fn measure(mut project: impl FnMut(&mut Vec<u8>)) -> f64 {
    let mut out = Vec::with_capacity(1 << 16);
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let mut count = 0;
            while count % 1000 != 0 || start.elapsed().as_millis() < 60 {
                out.clear();
                project(&mut out);
                black_box(&out);
                count += 1;
            }
            start.elapsed().as_nanos() as f64 / f64::from(count)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn small() -> String {
    r#"{"type":"person","name":"Ada Lovelace","email":"ada@example.org","born":1815,"city":"London","tags":["mathematics","engines"],"active":true,"score":0.75,"address":{"street":"St James's Square","number":12}}"#.into()
}

fn large() -> String {
    let mut body = String::from(
        r#"{"type":"order","date":"2024-05-06T07:08:09Z","customer":{"name":"Ada Lovelace","phones":["+44 1","+44 2"]},"items":["#,
    );
    let mut i = 0;
    while body.len() < 12 << 10 {
        if i > 0 {
            body.push(',');
        }
        body += &format!(
            r#"{{"sku":"item-{i:04}","title":"A thing with \"quotes\" and a long enough title {i}","price":{}.5,"size":{{"w":{i},"h":3,"unit":"mm"}},"tags":["a","bb","ccc"]}}"#,
            i * 3
        );
        i += 1;
    }
    body += r#"],"history":{"events":["#;
    let mut i = 0;
    while body.len() < 16 << 10 {
        if i > 0 {
            body.push(',');
        }
        body += &format!(r#"{{"at":{i},"what":"moved on [{i}]","by":{{"id":{i},"roles":[]}}}}"#);
        i += 1;
    }
    body += r#"]},"total":1234.5,"done":true}"#;
    body
}

// Hand-written: byte by byte, only these members.

fn string_end(text: &[u8], mut pos: usize) -> usize {
    pos += 1;
    while text[pos] != b'"' {
        pos += if text[pos] == b'\\' { 2 } else { 1 };
    }
    pos + 1
}

fn value_end(text: &[u8], mut pos: usize) -> usize {
    let mut depth = 0;
    loop {
        match text[pos] {
            b'"' => {
                pos = string_end(text, pos);
                if depth == 0 {
                    return pos;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return pos,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return pos + 1;
                }
            }
            b',' if depth == 0 => return pos,
            _ => {}
        }
        pos += 1;
    }
}

fn top_level(text: &[u8], wanted: &[&[u8]], out: &mut Vec<u8>) {
    out.push(b'{');
    let (mut pos, mut found) = (1, 0);
    while found < wanted.len() && text[pos - 1] != b'}' {
        let name_end = string_end(text, pos);
        let end = value_end(text, name_end + 1);
        if wanted.contains(&&text[pos + 1..name_end - 1]) {
            if found > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&text[pos..end]);
            found += 1;
        }
        pos = end + 1;
    }
    out.push(b'}');
}

fn prices(_: &[u8], text: &[u8], out: &mut Vec<u8>) {
    out.push(b'{');
    let (mut pos, mut found) = (1, 0);
    while found < 4 && text[pos - 1] != b'}' {
        let name_end = string_end(text, pos);
        let name = &text[pos + 1..name_end - 1];
        let items = name == b"items";
        let end = if items {
            out.extend_from_slice(b",\"items\":[");
            let mut element = name_end + 2;
            while text[element - 1] != b']' {
                top_level(&text[element..], &[b"price"], out);
                out.push(b',');
                element = value_end(text, element) + 1;
            }
            out.pop();
            out.push(b']');
            element
        } else {
            value_end(text, name_end + 1)
        };
        if items || name == b"type" || name == b"date" || name == b"total" {
            found += 1;
            if !items {
                out.push(b',');
                out.extend_from_slice(&text[pos..end]);
            }
        }
        pos = end + 1;
    }
    out.push(b'}');
}
