//! A standalone worker process, for this crate's tests: programs that use the crate start
//! themselves as their workers.

fn main() -> std::process::ExitCode {
    functions::js::worker_main()
}
