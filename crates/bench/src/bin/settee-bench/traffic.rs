//! `settee bench record` and `settee bench replay`.

use command_line::{
    Failure, RecordOptions, ReplayOptions, server_url, take_credentials, with_credentials,
};

use crate::runtime;

/// Records until Ctrl-C or SIGTERM.
pub fn record(options: RecordOptions) -> Result<(), Failure> {
    let file = options.output.display().to_string();
    let mut server = server_url(&options.to)?;
    // They are not for the screen.
    take_credentials(&mut server);
    let recording = bench::RecordOptions {
        listen: options.listen,
        server: options.to,
        file: options.output,
    };
    let ready = |address| {
        command_line::print(format_args!(
            "Recording requests to http://{address}, for {server}, into {file}; stop with Ctrl-C"
        ));
    };
    let recorded = runtime::start()?
        .block_on(bench::record(recording, ready))
        .map_err(Failure::new)?;
    let requests = command_line::counted(recorded.requests, "requests");
    command_line::print(format_args!("in {file}: {requests}"));
    for (reason, count) in &recorded.left_out {
        command_line::print(format_args!("{count} left out: {reason}"));
    }
    Ok(())
}

/// Replays. A status that differs is not a failure: finding it is the purpose of a replay.
pub fn replay(options: ReplayOptions) -> Result<(), Failure> {
    let replaying = bench::ReplayOptions {
        file: options.file,
        server: with_credentials(&options.url),
        speed: options.speed,
        json: options.json,
        width: command_line::terminal_width(),
    };
    let report = runtime::start()?
        .block_on(bench::replay(replaying, &mut std::io::stdout()))
        .map_err(Failure::new)?;
    match report.errors {
        0 => Ok(()),
        errors => Err(Failure::new(format!(
            "got no answer: {}",
            command_line::counted(errors, "requests")
        ))),
    }
}
