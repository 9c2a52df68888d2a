//! The fuzz targets' entry points, with inputs from proptest.

use projection::fuzz;
use proptest::prelude::*;

/// JSON objects of few names, whole and cut off.
const OBJECT: &str =
    "\\{(\"[abc]\":(\\{\"[abc]\":[0-9]\\}|\\[[0-9],\"x\"\\]|\"[a-c\\\\\"]{0,3}\"|null),?){0,4}\\}?";
/// Pieces of map functions.
const SOURCE: &str = "function *\\(doc\\) *\\{ *(emit\\(|doc|\\.a|\\.b|\\[0\\]|\\.length|;|\\)|\\(|var x = |if |for \\(var n in |x|n|, ){0,14}\\}";

proptest! {
    #[test]
    fn scanner(any in prop::collection::vec(any::<u8>(), 0..60), object in OBJECT) {
        fuzz::scanner(&any);
        fuzz::scanner(object.as_bytes());
    }

    #[test]
    fn analysis(source in SOURCE, object in OBJECT) {
        fuzz::analysis(format!("{source}\0{object}").as_bytes());
    }
}
