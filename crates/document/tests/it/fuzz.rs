//! The fuzz targets' entry points, with inputs from proptest.

use document::fuzz;
use proptest::prelude::*;

/// Any bytes, and texts of the given characters: most of the former end at the first byte.
fn bytes_like(pattern: &'static str) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        pattern.prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn json(bytes in bytes_like("([\\[\\]{},:]|\"[a_\\\\\"u0-9é]{0,3}\"|-?[0-9]{1,3}([.][0-9]{1,2})?(e[0-9])?|true|null| ){0,16}")) {
        fuzz::json(&bytes);
    }

    #[test]
    fn json_that_is_some(bytes in "([\\[]{0,3}|\\{\"(a|_id|b)\":)(-?[0-9]{1,30}([.][0-9]{1,2})?(e-?[0-9]{1,3})?|\"[a-z\\\\\"]{0,9}\"|null|\\{\\}|\\[\\])[\\]}]{0,3}") {
        fuzz::json(bytes.as_bytes());
    }

    #[test]
    fn multipart(piece: u8, body in bytes_like("(--b|--c|--|\r\n|\r|\n|a: x|n: 1|:|text| ){0,24}")) {
        fuzz::multipart(&[&[piece], &*body].concat());
        // Most bodies start with this.
        fuzz::multipart(&[&[piece % 7], &b"--b\r\n"[..], &body, b"\r\n--b--"].concat());
    }

    #[test]
    fn sort_keys(bytes in bytes_like("(\\[|\\]|,|[0-9]|\"[a-cA-CäÄ ]{0,3}\"|null|\\PC){0,12}")) {
        fuzz::sort_keys(&bytes);
    }

    #[test]
    fn stored(bytes in bytes_like("[\u{0}-\u{7}]{0,24}")) {
        fuzz::stored(&bytes);
    }
}
