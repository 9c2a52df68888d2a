//! The latest record version that this program reads. A test of upgrades has one program behave as
//! several versions of it.

use command_line::Failure;
use member::RecordVersion;

/// Set by tests only: the record version that this program claims to read, and reads at most.
pub const VARIABLE: &str = "SETTEE_TESTS_RECORD_VERSION";

/// Returns the latest record version that this program reads.
pub fn latest() -> Result<RecordVersion, Failure> {
    let Ok(text) = std::env::var(VARIABLE) else {
        return Ok(RecordVersion::LATEST);
    };
    let number = text.parse::<u8>().map_err(|e| e.to_string());
    let version = number.and_then(|n| RecordVersion::try_from(n).map_err(str::to_owned));
    let version = version.map_err(|e| Failure::usage(format!("{VARIABLE}={text}: {e}")))?;
    eprintln!(
        "settee: {VARIABLE} is set, for tests: this program behaves as one that reads record version {version}"
    );
    Ok(version)
}
