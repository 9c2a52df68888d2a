//! Progress on standard error. Nothing is drawn if that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(200);

/// Returns a bar over input bytes, whose number may not be known; the message carries the
/// documents.
pub(crate) fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{spinner} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}, {eta}) {msg}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {elapsed_precise} {bytes} ({bytes_per_sec}) {msg}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(REDRAW);
    bar
}
