//! How durable a competitor's writes are.

/// A note on a competitor's settings, with a warning for each that makes its writes less durable than the
/// server's.
pub(super) fn durability(
    competitor: &str,
    settings: &[(&'static str, String)],
    wanted: &[(&str, &str)],
) -> Vec<String> {
    let shown = settings.iter().map(|(name, value)| match value.as_str() {
        "" => format!("{name}=\"\""),
        value => format!("{name}={value}"),
    });
    let mut notes = vec![format!(
        "{competitor}: {}",
        shown.collect::<Vec<_>>().join(", ")
    )];
    let is_set = |name: &str, wanted: &str| {
        let mut settings = settings.iter();
        settings.any(|(known, value)| *known == name && value == wanted)
    };
    for (name, value) in wanted.iter().filter(|(name, value)| !is_set(name, value)) {
        notes.push(format!(
            "{competitor}: {name} is not {value}, so its writes are NOT as durable as the server's"
        ));
    }
    notes
}
