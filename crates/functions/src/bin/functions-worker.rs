//! A worker process by itself, for this crate's tests: programs that use the crate start themselves as their workers.

fn main() -> std::process::ExitCode {
    functions::js::worker_main()
}
