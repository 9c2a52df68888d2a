//! Progress on standard error. Nothing is drawn if that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(200);

/// A line that shows the current work.
pub(crate) fn spinner() -> ProgressBar {
    styled(
        ProgressBar::new_spinner(),
        "{spinner} {elapsed_precise} {msg}",
    )
}

/// A bar over documents or databases.
pub(crate) fn bar(total: u64, what: String) -> ProgressBar {
    styled(
        ProgressBar::new(total),
        "{spinner} {msg} {wide_bar} {human_pos}/{human_len} ({per_sec}, {eta})",
    )
    .with_message(what)
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(REDRAW);
    bar
}
