//! Writes `default.ini` from the table of settings.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../default.ini");
    std::fs::write(path, config::settings::default_ini())
}
