//! Progress on standard error. Nothing is drawn when it is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const REDRAW: Duration = Duration::from_millis(200);

/// A line that says what is going on now.
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

/// A bar over input bytes; the message carries the documents.
pub(crate) fn bytes_bar(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => styled(
            ProgressBar::new(total),
            "{spinner} {wide_bar} {bytes}/{total_bytes} ({bytes_per_sec}, {eta}) {msg}",
        ),
        None => styled(
            ProgressBar::new_spinner(),
            "{spinner} {elapsed_precise} {bytes} ({bytes_per_sec}) {msg}",
        ),
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(REDRAW);
    bar
}
