use super::*;
use proptest::prelude::*;
use serde_json::json;

const NOW_SECS: u64 = 1_000_000;

fn settings(ini: &str) -> JwtSettings {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("local.ini");
    std::fs::write(&path, ini).expect("write");
    let config = config::Config::load(config::Layers::new(path)).expect("load");
    JwtSettings::of(&config.settings())
}

/// `hello` and `other`
const KEYS: &str = "[jwt_keys]\nhmac:_default = aGVsbG8=\nhmac:k2 = b3RoZXI=\n";

fn encode(value: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

fn signed(header: Value, claims: Value, secret: &[u8]) -> String {
    let message = format!("{}.{}", encode(&header), encode(&claims));
    let hash = match header["alg"].as_str() {
        Some("HS384") => Hash::Sha384,
        Some("HS512") => Hash::Sha512,
        _ => Hash::Sha256,
    };
    let mac = hash.hmac(secret, message.as_bytes());
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
}

fn hs(claims: Value) -> String {
    signed(json!({"alg": "HS256", "typ": "JWT"}), claims, b"hello")
}

/// Name and roles, or the reason of the refusal.
fn judge(settings: &JwtSettings, token: &str) -> Result<(String, Vec<String>), String> {
    settings
        .user(token, NOW_SECS)
        .map(|user| (user.name.clone().unwrap_or_default(), user.roles.clone()))
        .map_err(|e| e.to_string())
}

fn joe(roles: &[&str]) -> Result<(String, Vec<String>), String> {
    let roles = roles.iter().map(|role| (*role).to_owned()).collect();
    Ok(("joe".to_owned(), roles))
}

fn refused(reason: &str) -> Result<(String, Vec<String>), String> {
    Err(reason.to_owned())
}

#[test]
fn a_signed_token_names_its_subject_and_roles() {
    let settings = settings(KEYS);
    let claims = json!({"sub": "joe", "exp": NOW_SECS + 1, "_couchdb.roles": ["a", "b"]});
    assert_eq!(judge(&settings, &hs(claims.clone())), joe(&["a", "b"]));
    for alg in ["HS384", "HS512"] {
        let token = signed(json!({"alg": alg, "kid": "k2"}), claims.clone(), b"other");
        assert_eq!(judge(&settings, &token), joe(&["a", "b"]), "{alg}");
    }
    let list = json!({"sub": "joe", "exp": NOW_SECS + 1, "_couchdb.roles": "a, b"});
    assert_eq!(judge(&settings, &hs(list)), joe(&["a", "b"]));
    let none = json!({"sub": "joe", "exp": NOW_SECS + 1});
    assert_eq!(judge(&settings, &hs(none)), joe(&[]));
}

#[test]
fn another_key_or_message_is_refused() {
    let settings = settings(KEYS);
    let claims = json!({"sub": "joe", "exp": NOW_SECS + 1});
    let header = json!({"alg": "HS256"});
    let other = signed(header.clone(), claims.clone(), b"hellO");
    assert_eq!(judge(&settings, &other), refused("Bad HMAC"));
    let unknown = signed(
        json!({"alg": "HS256", "kid": "x"}),
        claims.clone(),
        b"hello",
    );
    assert_eq!(judge(&settings, &unknown), refused("Unknown kid"));
    let token = hs(claims.clone());
    let (message, mac) = token.rsplit_once('.').expect("a token");
    let (header, _) = message.split_once('.').expect("a token");
    let admin = encode(&json!({"sub": "joe", "exp": NOW_SECS + 1, "_couchdb.roles": ["_admin"]}));
    let forged = format!("{header}.{admin}.{mac}");
    assert_eq!(judge(&settings, &forged), refused("Bad HMAC"));
    for alg in [
        "none", "None", "", "HS256 ", "PS256", "ES521", "RS1", "é2567",
    ] {
        let header = encode(&json!({"alg": alg}));
        let token = format!("{header}.{}.", encode(&claims));
        assert_eq!(
            judge(&settings, &token),
            refused("Invalid alg header parameter"),
            "{alg}"
        );
    }
    let token = format!("{}.{}.", encode(&json!({})), encode(&claims));
    assert_eq!(
        judge(&settings, &token),
        refused("Missing alg header parameter")
    );
}

/// The classic confusion: the published text of a public key as an HMAC secret.
#[test]
fn a_public_key_is_never_an_hmac_secret() {
    let pem = "-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYD54V/vp+54P9DXarYqx4MPcm+HKRIQzNasYSoRQHQ/6S6Ps8tpMcT+KvIIC8W/e9k0W7Cm72M1P9jU7SLf/vg==\\n-----END PUBLIC KEY-----\\n";
    let settings = settings(&format!("[jwt_keys]\nec:_default = {pem}\n"));
    assert_eq!(settings.problems(), Vec::<String>::new());
    let claims = json!({"sub": "joe", "exp": NOW_SECS + 1});
    for secret in [pem.to_owned(), pem.replace("\\n", "\n")] {
        let token = signed(json!({"alg": "HS256"}), claims.clone(), secret.as_bytes());
        assert_eq!(judge(&settings, &token), refused("Unknown kid"));
        let token = signed(json!({"alg": "ES256"}), claims.clone(), secret.as_bytes());
        assert_eq!(judge(&settings, &token), refused("Bad signature"));
        let token = signed(json!({"alg": "ES384"}), claims.clone(), secret.as_bytes());
        assert_eq!(judge(&settings, &token), refused("Bad signature"));
    }
}

/// RFC 7515, appendix A.3.
#[test]
fn the_rfcs_es256_example_verifies() {
    let pem = "-----BEGIN PUBLIC KEY-----\\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==\\n-----END PUBLIC KEY-----\\n";
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let settings = settings(&format!("[jwt_keys]\nec:_default = {pem}\n"));
    assert_eq!(judge(&settings, token), refused("Token missing sub claim."));
    let broken = token.replace("DtEh", "DtEi");
    assert_eq!(judge(&settings, &broken), refused("Bad signature"));
}

#[test]
fn times_count_whether_required_or_not() {
    for required in [
        "",
        "required_claims = exp\n",
        "required_claims = exp, nbf, iat\n",
    ] {
        let settings = settings(&format!("[jwt_auth]\n{required}{KEYS}"));
        let with = |exp: u64, nbf: u64| hs(json!({"sub": "joe", "exp": exp, "nbf": nbf, "iat": 1}));
        assert_eq!(
            judge(&settings, &with(NOW_SECS + 1, NOW_SECS - 1)),
            joe(&[])
        );
        assert_eq!(
            judge(&settings, &with(NOW_SECS, 1)),
            refused("exp not in future")
        );
        assert_eq!(
            judge(&settings, &with(NOW_SECS + 1, NOW_SECS)),
            refused("nbf not in past")
        );
    }
    let text = hs(json!({"sub": "joe", "exp": "never"}));
    assert_eq!(judge(&settings(KEYS), &text), refused("Invalid exp claim"));
    let missing = hs(json!({"sub": "joe"}));
    assert_eq!(
        judge(&settings(KEYS), &missing),
        refused("Missing exp claim")
    );
}

#[test]
fn required_claims_must_be_there_and_right() {
    let ini = |required: &str| format!("[jwt_auth]\nrequired_claims = {required}\n{KEYS}");
    let exp = NOW_SECS + 1;
    let settings_iss = settings(&ini("exp, {iss, \"me\"}"));
    let iss = |iss: Value| hs(json!({"sub": "joe", "exp": exp, "iss": iss}));
    assert_eq!(judge(&settings_iss, &iss("me".into())), joe(&[]));
    assert_eq!(
        judge(&settings_iss, &iss("you".into())),
        refused("Invalid iss claim")
    );
    assert_eq!(
        judge(&settings_iss, &iss(Value::Null)),
        refused("Invalid iss claim")
    );
    let without = hs(json!({"sub": "joe", "exp": exp}));
    assert_eq!(judge(&settings_iss, &without), refused("Missing iss claim"));
    for (required, reason) in [
        ("iat", "Missing iat claim"),
        ("nbf", "Missing nbf claim"),
        ("kid", "Missing kid claim"),
    ] {
        assert_eq!(judge(&settings(&ini(required)), &without), refused(reason));
    }
    let untyped = signed(
        json!({"alg": "HS256"}),
        json!({"sub": "joe", "exp": exp}),
        b"hello",
    );
    assert_eq!(
        judge(&settings(&ini("typ")), &untyped),
        refused("Missing typ header parameter")
    );
    for wrong in ["aud", "{exp, \"1\"}", "exp iat", "{iss}", "{iss, \"x\""] {
        let settings = settings(&ini(wrong));
        assert_eq!(settings.problems().len(), 1, "{wrong}");
        assert_eq!(
            judge(&settings, &without),
            refused("JWT is not configured correctly")
        );
    }
}

#[test]
fn roles_are_found_by_name_or_path() {
    let claims = json!({
        "sub": "joe", "exp": NOW_SECS + 1,
        "mine": ["m"], "a": {"b.c": {"roles": ["p"]}}, "a.b": ["flat"],
    });
    let by = |line: &str| {
        let settings = settings(&format!("[jwt_auth]\n{line}\n{KEYS}"));
        judge(&settings, &hs(claims.clone()))
    };
    assert_eq!(by("roles_claim_name = mine"), joe(&["m"]));
    assert_eq!(by("roles_claim_name = a.b"), joe(&["flat"]));
    assert_eq!(by("roles_claim_path = a.b\\.c.roles"), joe(&["p"]));
    assert_eq!(by("roles_claim_path = a.x.roles"), joe(&[]));
    assert_eq!(by("roles_claim_path = a"), refused("Malformed token"));
}

#[test]
fn bad_keys_are_named_without_their_values() {
    let settings = settings("[jwt_keys]\nhmac:a = ###\nrsa:b = -----BEGIN\nec:c = x\nx:d = y\n");
    assert_eq!(
        settings.problems(),
        [
            "[jwt_keys] ec:c: not an EC public key",
            "[jwt_keys] hmac:a: Not a valid key",
            "[jwt_keys] rsa:b: not an RSA public key",
            "[jwt_keys] x:d: Unknown kty",
        ]
    );
}

proptest! {
    #[test]
    fn no_token_panics_or_is_believed(token in "\\PC{0,60}|[A-Za-z0-9_-]{0,40}\\.[A-Za-z0-9_-]{0,40}\\.[A-Za-z0-9_-]{0,40}") {
        thread_local!(static SETTINGS: JwtSettings = settings(KEYS));
        SETTINGS.with(|settings| assert!(settings.user(&token, NOW_SECS).is_err()));
    }

    #[test]
    fn a_token_with_any_byte_changed_is_refused(at in 0usize..200, to in any::<u8>()) {
        thread_local!(static SETTINGS: JwtSettings = settings(KEYS));
        let token = hs(json!({"sub": "joe", "exp": NOW_SECS + 1}));
        let mut forged = token.clone().into_bytes();
        let at = at % forged.len();
        forged[at] = to;
        let forged = String::from_utf8_lossy(&forged).into_owned();
        prop_assume!(forged != token);
        SETTINGS.with(|settings| assert!(settings.user(&forged, NOW_SECS).is_err(), "{forged}"));
    }

    #[test]
    fn no_setting_panics(required in "\\PC{0,30}|[a-z{}\", ]{0,30}", path in "[a-z.\\\\]{0,20}") {
        let _ = parse_required(&required);
        prop_assert!(!split_path(&path).is_empty());
    }
}

#[test]
fn extensions_that_must_be_understood_are_refused() {
    let settings = settings(KEYS);
    let claims = json!({"sub": "joe", "exp": NOW_SECS + 1});
    for crit in [
        json!(["exp"]),
        json!(["b64"]),
        json!([]),
        json!("exp"),
        json!(null),
        json!({}),
    ] {
        let header = json!({"alg": "HS256", "exp": 1, "b64": true, "crit": crit});
        let token = signed(header, claims.clone(), b"hello");
        let reason = "Unsupported crit header parameter";
        assert_eq!(judge(&settings, &token), refused(reason), "{crit}");
    }
    for (b64, outcome) in [
        (json!(false), refused("Unsupported b64 header parameter")),
        (json!("x"), refused("Unsupported b64 header parameter")),
        (json!(true), joe(&[])),
    ] {
        let token = signed(
            json!({"alg": "HS256", "b64": b64}),
            claims.clone(),
            b"hello",
        );
        assert_eq!(judge(&settings, &token), outcome, "{b64}");
    }
}

/// Returns a token whose parts are these texts, signed.
fn signed_texts(header: &str, claims: &str) -> String {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", encode(header), encode(claims));
    let mac = Hash::Sha256.hmac(b"hello", message.as_bytes());
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
}

#[test]
fn members_that_are_there_twice_are_refused() {
    let settings = settings(KEYS);
    let (header, claims) = (r#"{"alg":"HS256"}"#, r#"{"sub":"joe","exp":9000000}"#);
    assert_eq!(judge(&settings, &signed_texts(header, claims)), joe(&[]));
    for (header, claims) in [
        (r#"{"alg":"none","alg":"HS256"}"#, claims),
        (r#"{"crit":["x"],"alg":"HS256","crit":[]}"#, claims),
        (header, r#"{"sub":"admin","sub":"joe","exp":9000000}"#),
        (header, r#"{"sub":"joe","exp":1,"\u0065xp":9000000}"#),
    ] {
        let refusal = judge(&settings, &signed_texts(header, claims));
        assert!(refusal.is_err(), "{header} {claims}: {refusal:?}");
    }
}

#[test]
fn odd_times_and_odd_encodings_are_refused() {
    let settings = settings(KEYS);
    let header = r#"{"alg":"HS256"}"#;
    for (exp, good) in [
        ("1e300", true),
        ("1000000.5", true),
        ("1e400", false),
        ("-1", false),
        ("-1e300", false),
        ("\"9000000\"", false),
        ("null", false),
        ("[9000000]", false),
        ("NaN", false),
    ] {
        let token = signed_texts(header, &format!(r#"{{"sub":"joe","exp":{exp}}}"#));
        assert_eq!(judge(&settings, &token).is_ok(), good, "{exp}");
    }
    let good = signed_texts(header, r#"{"sub":"joe","exp":9000000}"#);
    let deep = format!(
        r#"{{"sub":"joe","exp":9000000,"x":{}{}}}"#,
        "[".repeat(9999),
        "]".repeat(9999)
    );
    for token in [
        format!("{good}."),
        format!("{good}.x"),
        format!("{good}="),
        format!("{good}\n"),
        format!(" {good}"),
        good.replace('.', ".."),
        good.replacen('.', "=.", 1),
        good.replacen("eyJ", "ey J", 1),
        signed_texts(header, &deep),
    ] {
        assert!(judge(&settings, &token).is_err(), "{token:.80}");
    }
}

#[test]
fn keys_are_found_by_their_whole_names() {
    let settings = settings("[jwt_keys]\nhmac:a.b:c = aGVsbG8=\nhmac:empty =\n");
    let claims = json!({"sub": "joe", "exp": NOW_SECS + 1});
    let with = |kid: &str| {
        signed(
            json!({"alg": "HS256", "kid": kid}),
            claims.clone(),
            b"hello",
        )
    };
    assert_eq!(judge(&settings, &with("a.b:c")), joe(&[]));
    for kid in ["a", "a.b", "c", "A.b:c", "hmac:a.b:c", "", "_default"] {
        assert_eq!(
            judge(&settings, &with(kid)),
            refused("Unknown kid"),
            "{kid}"
        );
    }
    let empty = signed(json!({"alg": "HS256", "kid": "empty"}), claims, b"");
    assert!(judge(&settings, &empty).is_err());
}
