//! Flags of the linker, and what rustler's macros are to write.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The symbol that Erlang looks for. Rustler writes it only for packages that are named on
    // cargo's command line, unless an instruction says so.
    println!("cargo:rustc-env=RUSTLER_PRIMARY_NIF_INIT=1");
    // The library has threads: it stays where it is, even when Erlang purges its module.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
