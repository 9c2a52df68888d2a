//! `settee monitoring`: files for Prometheus and Grafana.

use crate::cli::Monitoring;

const ALERTS: &str = include_str!("../../monitoring/alerts.yml");
const DASHBOARD: &str = include_str!("../../monitoring/dashboard.json");

/// Prints a file that is in the program.
pub fn run(what: Monitoring) {
    let text = match what {
        Monitoring::Alerts => ALERTS,
        Monitoring::Dashboard => DASHBOARD,
    };
    say!("{}", text.trim_end());
}
