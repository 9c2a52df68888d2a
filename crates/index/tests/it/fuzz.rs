//! The fuzz targets' entry points, with generated inputs.

use index::fuzz;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(0u8..9, 0..40),
    ]
}

proptest! {
    #[test]
    fn stored_values(bytes in bytes()) {
        fuzz::stored(&bytes);
    }

    #[test]
    fn places(bytes in bytes()) {
        fuzz::places(&bytes);
    }
}
