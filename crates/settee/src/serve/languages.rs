//! The configured runtimes of users' functions.

use std::sync::Arc;

use config::{Config, settings};
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

/// Query servers follow changes of the configuration, the JavaScript engine keeps its settings from
/// the start.
pub fn start(config: &Config) -> Result<Arc<dyn Languages>, Failure> {
    let settings = config.settings();
    let memory = MemoryPlan::new(&settings);
    let time_zone = time_zone(&settings.functions);
    let javascript = options::javascript(&settings.functions, &memory, time_zone);
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

/// Returns the effective time zone of dates: that of the configuration or of the environment, in
/// threads of this process its own; UTC if the system does not know it.
fn time_zone(settings: &settings::Functions) -> String {
    let value = match settings.isolation {
        settings::Isolation::Thread => functions::js::process_time_zone(),
        settings::Isolation::Process => {
            let configured = settings.time_zone.clone();
            let value = configured.or_else(|| std::env::var("TZ").ok());
            value.unwrap_or_default()
        }
    };
    functions::js::known_time_zone(&value).unwrap_or_else(|| {
        tracing::warn!(
            time_zone = value,
            "this machine does not know the time zone of functions ([functions] time_zone, or TZ): dates are in UTC"
        );
        UTC.to_owned()
    })
}

fn query_servers(config: &Config) -> Settings {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let commands = Settings::commands_of_environment(variables);
    let descriptors = DescriptorPlan::new(false);
    options::query_servers(&config.settings(), &descriptors, &commands)
}
