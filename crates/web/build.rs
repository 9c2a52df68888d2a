//! Takes the built pages from `web/dist` into the program, compressed ahead.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    // As it is now: this script, once compiled, may run for a checkout in another place.
    let checkout = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let dist = Path::new(&checkout).join("../../web/dist");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo:rerun-if-changed={}", dist.display());
    let files = fs::read_dir(&dist)?.map(|file| Ok(file?.path()));
    let mut files = files.collect::<io::Result<Vec<PathBuf>>>()?;
    files.sort();
    let mut table = "&[\n".to_owned();
    for path in files {
        add(&path, &out, &mut table)?;
    }
    table.push(']');
    fs::write(out.join("files.rs"), table)
}

/// Writes a file's compressed forms, and its entry of the table.
fn add(path: &Path, out: &Path, table: &mut String) -> io::Result<()> {
    println!("cargo:rerun-if-changed={}", path.display());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = fs::read(path)?;
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
    gzip.write_all(&plain)?;
    fs::write(out.join(format!("{name}.gz")), gzip.finish()?)?;
    let mut brotli = vec![];
    let params = brotli::enc::BrotliEncoderParams::default();
    brotli::BrotliCompress(&mut plain.as_slice(), &mut brotli, &params)?;
    fs::write(out.join(format!("{name}.br")), brotli)?;
    let kind = match path.extension().and_then(|e| e.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        _ => {
            return Err(io::Error::other(format!(
                "{name}: a kind of file that is not known"
            )));
        }
    };
    let hash = blake3::hash(&plain).to_hex();
    // The places of checkout and build are not in the text, which would differ elsewhere.
    let bytes = |place: &str, file: &str| {
        let file = format!("/{file}");
        format!("include_bytes!(concat!(env!({place:?}), {file:?}))")
    };
    let _ = writeln!(
        table,
        "File {{ name: {name:?}, kind: {kind:?}, hash: {:?}, plain: {}, gzip: {}, brotli: {} }},",
        &hash[..16],
        bytes("CARGO_MANIFEST_DIR", &format!("../../web/dist/{name}")),
        bytes("OUT_DIR", &format!("{name}.gz")),
        bytes("OUT_DIR", &format!("{name}.br")),
    );
    Ok(())
}
