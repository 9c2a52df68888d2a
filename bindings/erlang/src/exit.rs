//! The end of the node.

use std::sync::Once;

static REGISTERED: Once = Once::new();

/// Lets directories that are open when the node ends be closed first, so that writes that did not
/// wait for the disk are not lost, and no thread of the store runs while its memory is torn down.
#[allow(unsafe_code)]
pub fn close_directories_at_exit() {
    REGISTERED.call_once(|| {
        // SAFETY: the function has the signature that atexit expects, does not unwind, and stays in
        // memory, because the library is linked so that it is never unloaded (build.rs).
        let refused = unsafe { libc::atexit(at_exit) };
        // Refused only for lack of memory; then directories must be closed by calls.
        debug_assert_eq!(refused, 0);
    });
}

extern "C" fn at_exit() {
    // A panic cannot be reported here.
    let _ = std::panic::catch_unwind(crate::opened::close_all);
}
