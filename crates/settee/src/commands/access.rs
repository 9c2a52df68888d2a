//! `settee access merge`.

use command_line::counted;
use migrate::merge;

use crate::Failure;
use crate::cli::{AccessMergeOptions, OwnerRule};
use crate::commands::migrate::show;
use crate::commands::runtime;

pub fn run(options: &AccessMergeOptions) -> Result<(), Failure> {
    runtime()?.block_on(merge_databases(options))
}

async fn merge_databases(options: &AccessMergeOptions) -> Result<(), Failure> {
    let summary = merge::run(&merge::Options {
        source: options.source.clone(),
        target: options.to.clone().unwrap_or_else(|| options.source.clone()),
        pattern: options.pattern.clone(),
        into: options.into.clone(),
        rule: match options.by {
            OwnerRule::Security => merge::Rule::Security,
            OwnerRule::Name => merge::Rule::Name,
        },
        prefix_ids: options.prefix_ids,
        verify_only: options.verify_only,
    })
    .await
    .map_err(|e| match e {
        migrate::Error::Url(_) => Failure::usage(e),
        e => Failure::new(e),
    })?;
    show(&summary, options.verify_only);
    if !summary.failures.is_empty() {
        return Err(Failure::new(format!(
            "not merged: {}; run the command again to continue",
            counted(summary.failures.len(), "databases or documents")
        )));
    }
    match summary.differences.is_empty() {
        true => Ok(()),
        false => Err(Failure {
            message: "source and target differ".into(),
            status: 3,
        }),
    }
}
