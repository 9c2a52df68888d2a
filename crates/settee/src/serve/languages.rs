//! Who runs users' functions, as configured.

use std::path::Path;
use std::sync::Arc;

use config::Config;
use functions::UTC;
use functions::query_server::Settings;
use functions::{Functions, Languages};
use node::{DescriptorPlan, MemoryPlan};

use super::options;
use crate::Failure;

/// Sections that query servers are configured in.
const QUERY_SERVER_SECTIONS: [&str; 4] = [
    "couchdb",
    "query_servers",
    "native_query_servers",
    "query_server_config",
];

/// Query servers follow changes of the configuration, the JavaScript engine is what it was at the start.
pub fn start(config: &Config) -> Result<Arc<dyn Languages>, Failure> {
    let settings = config.settings();
    let of_environment = std::env::var("TZ").ok();
    let memory = MemoryPlan::new(&settings);
    let javascript = options::javascript(&settings.functions, &memory, of_environment);
    if !is_known_zone(&javascript.time_zone) {
        tracing::warn!(
            time_zone = javascript.time_zone,
            "this machine does not know the time zone of functions ([functions] time_zone, or TZ): dates are in UTC"
        );
    }
    let functions = Functions::new(javascript, query_servers(config)).map_err(Failure::new)?;
    let configured = Arc::downgrade(&functions);
    let settings = config.clone();
    config.subscribe(move |change| {
        if QUERY_SERVER_SECTIONS.contains(&change.section.as_str())
            && let Some(functions) = configured.upgrade()
        {
            functions.configure(query_servers(&settings));
        }
    });
    Ok(functions)
}

/// Returns whether the system knows a time zone. One that is described by its rules has a digit.
fn is_known_zone(name: &str) -> bool {
    let name = name.strip_prefix(':').unwrap_or(name);
    name == UTC
        || name.bytes().any(|b| b.is_ascii_digit())
        || Path::new("/usr/share/zoneinfo").join(name).is_file()
}

fn query_servers(config: &Config) -> Settings {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let commands = Settings::commands_of_environment(variables);
    let descriptors = DescriptorPlan::new(false);
    options::query_servers(&config.settings(), &descriptors, &commands)
}
