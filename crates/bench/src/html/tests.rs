//! The page escapes its texts, and is complete.

use std::time::Duration;

use super::*;
use crate::gather::Gatherer;
use crate::lines::Figure;
use crate::report::{Failure, Server};
use crate::slice::Slice;
use crate::system::WorkloadPart;
use crate::timeline::{Event, Sample};

const EVIL: &str = "</title></style><script>alert('x')</script><img src=x onerror=\"alert(1)\">";

fn report(sides: usize) -> Report {
    let mut gathering = Gatherer::new(sides);
    for repeat in 0..6 {
        for side in 0..sides {
            let mut slice = Slice::new();
            for us in 0..500 {
                slice.record(1, Duration::from_micros(100 + us * (1 + side as u64)));
            }
            slice.seconds = 0.5 + 0.2 * side as f64 + 0.01 * f64::from(repeat);
            slice.errors.add(1, || EVIL.to_owned());
            let part = WorkloadPart {
                name: "get",
                unit: "req",
                slice,
                cpu_seconds: Some(0.4),
                peak_resident_bytes: Some(1 << 27),
            };
            gathering.add(side, repeat, 0.0, part);
        }
    }
    let lines = gathering.into_lines("get");
    let server = Server {
        url: format!("http://h/{EVIL}"),
        nodes: 1,
        product: EVIL.to_owned(),
        pids: vec![],
    };
    Report {
        servers: vec![server; sides],
        comparisons: crate::compare::sides(&lines, &[]),
        lines,
        repeats: 6,
        notes: vec![EVIL.to_owned()],
        warnings: vec![EVIL.to_owned()],
        failures: vec![Failure {
            workload: EVIL.to_owned(),
            reason: EVIL.to_owned(),
        }],
        events: vec![Event {
            at_s: 1.0,
            text: EVIL.to_owned(),
            is_fault: true,
        }],
        timeline: crate::timeline::Timeline {
            servers: vec![vec![
                Sample {
                    at_s: 1.0,
                    cpu: 0.7,
                    ..Sample::default()
                },
                Sample {
                    at_s: 2.0,
                    ..Sample::default()
                },
            ]],
            machine: vec![],
        },
        ..Report::default()
    }
}

#[test]
fn what_a_server_says_stays_text() {
    let flame = Flame {
        title: EVIL.to_owned(),
        svg: format!("<svg>{EVIL}</svg>"),
    };
    let html = page(&report(2), &[&flame]);
    assert!(!html.contains("<script"), "a script got through");
    assert!(!html.contains("<img"), "a picture got through");
    assert_eq!(html.matches("</style>").count(), 1);
    assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
    assert!(html.contains("sandbox=\"allow-scripts\""));
}

#[test]
fn the_page_and_the_terminal_show_the_same_figures() {
    let mut gathering = Gatherer::new(1);
    let mut build = Figure::new("time of a build".to_owned(), "seconds", 1);
    // The last repeat takes four times as long, so the two kinds of means differ much.
    for (repeat, times) in (0..).zip([1_u64, 1, 1, 1, 1, 4]) {
        let mut slice = Slice::new();
        (0..300).for_each(|_| slice.record(1, Duration::from_millis(times)));
        (slice.count, slice.seconds) = (100_000, times as f64);
        let part = WorkloadPart {
            name: "get",
            unit: "req",
            slice,
            cpu_seconds: None,
            peak_resident_bytes: None,
        };
        gathering.add(0, repeat, 0.0, part);
        build.add(0, times as f64 * 1e6);
    }
    let report = Report {
        lines: gathering.into_lines("get"),
        figures: vec![build],
        ..report(1)
    };
    let html = page(&report, &[]);
    let mut text = Vec::new();
    crate::table::print(&report, &mut text, None).unwrap();
    let text = String::from_utf8(text).unwrap();
    // The geometric means of rate, latency and single value, and the means of all repeats together.
    for usual in ["79,370", "1.26", "1,259,921"] {
        assert!(html.contains(usual), "{usual} in {html}");
        assert!(text.contains(usual), "{usual} in {text}");
    }
    for together in ["66,667", "1,500,000"] {
        assert!(!html.contains(together), "{together} in {html}");
        assert!(!text.contains(together), "{together} in {text}");
    }
}

#[test]
fn equal_products_are_told_apart_by_their_urls() {
    let mut report = report(2);
    for (server, port) in report.servers.iter_mut().zip([1, 2]) {
        server.product = "Settee, version 1.2.3".to_owned();
        server.url = format!("http://h:{port}");
    }
    let heading = "<h1>Settee, version 1.2.3 at http://h:1 against http://h:2</h1>";
    assert!(page(&report, &[]).contains(heading));
    report.servers[1].product = "Other, version 3".to_owned();
    assert!(page(&report, &[]).contains("<h1>Settee, version 1.2.3 against Other, version 3</h1>"));
}

#[test]
fn a_page_without_pictures_allows_no_script_and_no_network() {
    let html = page(&report(1), &[]);
    assert!(html.contains("default-src 'none'") && !html.contains("script-src"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn tags_are_closed_in_the_order_in_which_they_were_opened() {
    for html in [
        page(&report(1), &[]),
        page(&report(2), &[]),
        page(&Report::default(), &[]),
    ] {
        let mut open: Vec<&str> = Vec::new();
        for tag in html.split('<').skip(1) {
            let name = tag.split([' ', '>', '\n']).next().unwrap();
            let is_void = ["!doctype", "meta"].contains(&name)
                || tag.split('>').next().unwrap().ends_with('/');
            match name.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed), "{tag}"),
                None if is_void => {}
                None => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}

#[test]
fn differences_are_told_with_their_intervals() {
    let html = page(&report(2), &[]);
    assert!(
        html.contains("A is better: ") && html.contains("A difference is shown in"),
        "{html}"
    );
    assert!(html.contains("Failed") && html.contains("Before you believe this"));
    assert!(
        !html.contains("NaN") && !html.contains("inf"),
        "a number is none"
    );
}
