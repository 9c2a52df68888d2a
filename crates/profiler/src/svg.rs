//! Flame graphs: one SVG with its script in it, which needs nothing else.

use std::borrow::Cow;
use std::io;

use inferno::differential;
use inferno::flamegraph::color::{BackgroundColor, Color, StrokeColor};
use inferno::flamegraph::{self, Options, Palette};

use crate::Error;
use crate::profile::{Profile, Unit};

/// Narrower frames are left out of a graph, in percent of its width: they are invisible, and would
/// be most of its bytes.
const WIDTH_MIN: f64 = 0.05;
/// Follows the reader's choice of light or dark. Frames have their own colours, on which black is
/// read in both.
const STYLE: &str = "
#title, #subtitle, #details, #matched, #unzoom, #search { fill:#1f2328; }
#subtitle { fill:#59636e; }
#search { opacity:0.6; }
@media (prefers-color-scheme: dark) {
  :root { background:#15181d; }
  svg > rect { fill:#15181d; }
  #title, #details, #matched, #unzoom, #search { fill:#e6e8eb; }
  #subtitle { fill:#a4acb5; }
  #frames > g:hover { stroke:white; }
}
</style>";

/// The caption of a graph.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Its subject.
    pub title: String,
    /// How and when it was created.
    pub subtitle: String,
}

impl Profile {
    /// Returns the flame graph.
    ///
    /// # Errors
    /// [`Error::Empty`], and [`Error::Graph`].
    pub fn svg(&self, graph: &Graph) -> Result<String, Error> {
        let folded = self.folded();
        let lines: Vec<_> = folded.lines().map(with_one_number).collect();
        let mut options = options(graph);
        if self.unit == Unit::Microseconds {
            options.count_name = "\u{b5}s".to_owned();
        }
        options.deterministic = true;
        draw(&mut options, lines.iter().map(|line| line.as_ref()))
    }
}

/// Draws a flame graph of `after`, with growth in red and shrinkage in blue.
///
/// # Errors
/// [`Error::Empty`] when one of them is, and [`Error::Graph`].
pub fn differences(before: &Profile, after: &Profile, graph: &Graph) -> Result<String, Error> {
    if before.stacks.is_empty() || after.stacks.is_empty() {
        return Err(Error::Empty);
    }
    let folded = |profile: &Profile| {
        let folded = profile.folded();
        let lines = folded.lines().map(with_one_number);
        lines
            .flat_map(|line| [line, "\n".into()])
            .collect::<String>()
    };
    let (old, new) = (folded(before), folded(after));
    let mut both = vec![];
    // Profiles of different lengths are compared by shares.
    let how = differential::Options {
        normalize: true,
        ..differential::Options::default()
    };
    differential::from_readers(how, old.as_bytes(), new.as_bytes(), &mut both)
        .map_err(Error::Graph)?;
    let both = String::from_utf8_lossy(&both);
    draw(&mut options(graph), both.lines())
}

/// Returns a folded stack whose last frame ends in a number (a view called `top 10`) would be taken
/// for one with two counts.
fn with_one_number(line: &str) -> Cow<'_, str> {
    let parts = line
        .rsplit_once(' ')
        .and_then(|(stack, count)| Some((stack.rsplit_once(' ')?, count)));
    match parts {
        Some(((stack, number), count)) if number.parse::<f64>().is_ok() => {
            format!("{stack}\u{a0}{number} {count}").into()
        }
        _ => line.into(),
    }
}

fn options(graph: &Graph) -> Options<'static> {
    let mut options = Options::default();
    options.title.clone_from(&graph.title);
    options.subtitle = Some(graph.subtitle.clone());
    options.colors = Palette::Basic(flamegraph::color::BasicPalette::Orange);
    options.bgcolors = Some(BackgroundColor::Flat(WHITE));
    options.stroke_color = StrokeColor::None;
    options.min_width = WIDTH_MIN;
    options.font_width = 0.6;
    options
}

const WHITE: Color = Color {
    r: 255,
    g: 255,
    b: 255,
};

fn draw<'a>(
    options: &mut Options<'_>,
    lines: impl Iterator<Item = &'a str>,
) -> Result<String, Error> {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return Err(Error::Empty);
    }
    let mut svg = vec![];
    flamegraph::from_lines(options, lines, &mut svg).map_err(Error::Graph)?;
    let svg = String::from_utf8(svg)
        .map_err(|e| Error::Graph(io::Error::new(io::ErrorKind::InvalidData, e)))?;
    Ok(svg.replacen("</style>", STYLE, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Unit = Unit::Samples { hz: 99 };

    fn graph() -> Graph {
        Graph {
            title: "a <title>".into(),
            subtitle: "of a test".into(),
        }
    }

    #[test]
    fn a_graph_has_its_frames_and_needs_nothing_else() {
        let profile = Profile::parse("main;a<b>;c 90\nmain;d 10\n", UNIT).expect("a profile");
        let svg = profile.svg(&graph()).expect("a graph");
        for wanted in [
            "a &lt;title&gt;",
            "a&lt;b&gt;",
            "(90 samples, 90.00%)",
            "prefers-color-scheme",
        ] {
            assert!(svg.contains(wanted), "{wanted}: {svg}");
        }
        for load in ["href=\"http", "src=", "@import"] {
            assert!(!svg.contains(load), "{load}");
        }
        let numbered = Profile::parse("main;top 10 90\n", UNIT).expect("a profile");
        let svg = numbered.svg(&graph()).expect("a graph");
        assert!(svg.contains("top\u{a0}10 (90 samples, 100.00%)"), "{svg}");
        assert!(matches!(
            Profile::new(UNIT).svg(&graph()),
            Err(Error::Empty)
        ));
    }

    #[test]
    fn what_grew_is_told_from_what_shrank() {
        let before = Profile::parse("main;a 50\nmain;b 50\n", UNIT).expect("a profile");
        let after = Profile::parse("main;a 10\nmain;b 90\n", UNIT).expect("a profile");
        let svg = differences(&before, &after, &graph()).expect("a graph");
        assert!(svg.contains("+40.00%") && svg.contains("-40.00%"), "{svg}");
        assert!(differences(&Profile::new(UNIT), &after, &graph()).is_err());
    }
}
