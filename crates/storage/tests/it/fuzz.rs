//! The fuzz targets' entry points, with inputs from proptest.

use proptest::prelude::*;
use storage::fuzz;

proptest! {
    #[test]
    fn stored_values(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(0u8..20, 0..60),
    ]) {
        fuzz::stored(&bytes);
    }
}
