mod choices;
mod differences;
mod differential;
mod followed;
mod maker;
mod refused;
mod scanner;
mod stateless;
mod table;

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}
