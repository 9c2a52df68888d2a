//! `settee load`.

use crate::Failure;
use crate::cli::{LoadOptions, with_credentials};
use crate::commands::runtime;
use command_line::{counted, server_url};

pub fn run(options: LoadOptions) -> Result<(), Failure> {
    // A source has no scheme if it is a file; the database always has one.
    server_url(&options.database)?;
    let (url, db) = options
        .database
        .trim_end_matches('/')
        .rsplit_once('/')
        .filter(|(url, db)| url.contains("://") && !url.ends_with('/') && !db.is_empty())
        .ok_or_else(|| {
            Failure::usage("the database is given as http://NAME:PASSWORD@HOST:PORT/DB")
        })?;
    let run = load::LoadOptions {
        source: options.source.clone(),
        url: with_credentials(url),
        db: db.into(),
        batch_docs: options.batch,
        parallel: options.parallel,
        id_field: options.id_field.clone(),
        id_from_key: options.id_from_key,
        create: !options.no_create,
        ..load::LoadOptions::default()
    };
    match runtime()?.block_on(load::load(run)) {
        Ok(report) => {
            say!("{report}");
            if report.refused_count() > 0 {
                return Err(Failure {
                    message: format!("refused: {}", counted(report.refused_count(), "documents")),
                    status: 3,
                });
            }
            Ok(())
        }
        Err(e) => {
            // A mistake in the command line is one line.
            if e.report.read > 0 {
                say!("{}", e.report);
            }
            Err(Failure::new(&e))
        }
    }
}
