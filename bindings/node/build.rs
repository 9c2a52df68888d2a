//! Lets the linker accept that Node has the symbols.

fn main() {
    napi_build::setup();
}
