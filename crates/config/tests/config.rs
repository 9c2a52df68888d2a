//! The configuration as its users see it.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use config::{Config, ConfigError, Layers};
use tempfile::TempDir;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            folder: tempfile::tempdir().expect("temporary folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(&path, text).expect("write");
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("read")
    }

    fn layers(&self) -> Layers {
        Layers::new(self.path("etc/local.ini"))
    }

    fn config(&self) -> Config {
        Config::load(self.layers()).expect("load")
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn later_layers_win() {
    let place = Place::new();
    let mut layers = place.layers();
    let expect = |layers: &Layers, value: &str| {
        let config = Config::load(layers.clone()).expect("load");
        assert_eq!(config.get("chttpd", "port"), some(value));
    };
    expect(&layers, "5984");
    layers.files = vec![
        place.write("a.ini", "[chttpd]\nport=1\n"),
        place.write("b.ini", "[chttpd]\nport=2\n"),
    ];
    expect(&layers, "2");
    place.write("local.d/2.ini", "[chttpd]\nport=4\n");
    place.write("local.d/1.ini", "[chttpd]\nport=3\n");
    place.write("local.d/3.txt", "[chttpd]\nport=9\n");
    layers.local_d = Some(place.path("local.d"));
    expect(&layers, "4");
    place.write("etc/local.ini", "[chttpd]\nport=5\n");
    expect(&layers, "5");
    layers.env = vec![("SETTEE_CHTTPD_PORT".to_owned(), "6".to_owned())];
    expect(&layers, "6");
    layers.overrides = vec![("chttpd".to_owned(), "port".to_owned(), "7".to_owned())];
    expect(&layers, "7");
}

#[test]
fn keys_that_default_ini_only_mentions_are_not_set_but_have_their_default() {
    let config = Place::new().config();
    assert_eq!(config.get("couchdb", "max_document_size"), None);
    let settings = config.settings();
    assert_eq!(settings.couchdb.max_document_size, 8_000_000);
    assert_eq!(settings.couchdb.max_document_id_length, u64::MAX);
    assert_eq!(config.get("cluster", "n"), some("1"));
    assert!(settings.chttpd.admin_only_all_dbs);
    assert_eq!(settings.chttpd_auth.secret, None);
}

#[test]
fn the_older_name_of_a_section_counts_when_the_newer_has_no_value() {
    let place = Place::new();
    place.write("etc/local.ini", "[couch_httpd_auth]\ntimeout = 7\n");
    let config = place.config();
    let timeout = || config.settings().chttpd_auth.timeout.as_secs();
    assert_eq!(timeout(), 7);
    config
        .set("chttpd_auth", "timeout", "8", false)
        .expect("set");
    assert_eq!(timeout(), 8);
}

#[test]
fn a_value_of_the_wrong_kind_is_named() {
    let place = Place::new();
    place.write("etc/local.ini", "[chttpd]\nport = many\n");
    let error = Config::load(place.layers()).expect_err("wrong kind");
    assert_eq!(
        error.to_string(),
        "[chttpd] port = many: a whole number up to 65535 expected"
    );
    let config = Place::new().config();
    assert!(matches!(
        config.set("couch_httpd_auth", "timeout", "x", true),
        Err(ConfigError::InvalidSetting { .. })
    ));
    config.set("own", "x", "text", false).expect("set");
}

#[test]
fn a_value_out_of_range_is_refused_where_it_is_set() {
    let config = Place::new().config();
    let before = config.settings();
    for (section, key, value) in [
        ("chttpd", "port", "65536"),
        ("chttpd", "bind_address", "nowhere"),
        ("cluster", "q", "0"),
        ("couch_peruser", "q", "257"),
        ("query_server_config", "reduce_limit_ratio", "half"),
    ] {
        let refused = config.set(section, key, value, true);
        assert!(
            matches!(refused, Err(ConfigError::InvalidSetting { .. })),
            "[{section}] {key} = {value}"
        );
    }
    assert!(*config.settings() == *before);
}

#[test]
fn settings_follow_every_change() {
    let place = Place::new();
    let config = place.config();
    let before = config.settings();
    config.set("admins", "anna", "x", false).expect("set");
    config.set("cors", "origins", "a, b,", false).expect("set");
    let after = config.settings();
    assert_eq!(after.admins.all["anna"], "x");
    assert_eq!(after.cors.origins, Some(vec!["a".into(), "b".into()]));
    assert!(before.admins.all.is_empty(), "a snapshot stays as it was");
    config.delete("cors", "origins", false).expect("delete");
    assert_eq!(config.settings().cors.origins, None);
    config.reload().expect("reload");
    assert!(*config.settings() == *before);
}

#[test]
fn set_returns_the_old_value_and_survives_a_restart() {
    let place = Place::new();
    place.write("etc/local.ini", "; mine\n[a]\nx = 1 ; one\n");
    let config = place.config();
    assert_eq!(config.set("a", "x", "2", true).expect("set"), some("1"));
    assert_eq!(
        config.set("vectest", "k;v", "a=b;c", true).expect("set"),
        None
    );
    assert_eq!(
        place.read("etc/local.ini"),
        "; mine\n[a]\nx = 2\n\n[vectest]\nk;v = a=b;c\n"
    );
    let again = place.config();
    assert_eq!(again.all(), config.all());
    assert_eq!(again.persisted("a", "x").expect("read"), some("2"));
}

#[test]
fn what_is_not_persisted_is_forgotten_by_reload() {
    let place = Place::new();
    let config = place.config();
    config.set("a", "x", "1", false).expect("set");
    assert!(!place.path("etc/local.ini").exists());
    assert_eq!(config.get("a", "x"), some("1"));
    config.reload().expect("reload");
    assert_eq!(config.get("a", "x"), None);
}

#[test]
fn delete_hides_the_value_of_default_ini_for_good() {
    let place = Place::new();
    let config = place.config();
    assert_eq!(
        config.delete("cluster", "q", true).expect("delete"),
        some("2")
    );
    assert_eq!(config.delete("cluster", "q", true).expect("delete"), None);
    assert_eq!(config.get("cluster", "q"), None);
    assert_eq!(place.config().get("cluster", "q"), None);
    assert_eq!(config.set("cluster", "q", "3", true).expect("set"), None);
    assert_eq!(place.read("etc/local.ini"), "[cluster]\nq = 3\n");
}

#[test]
fn names_and_values_that_an_ini_file_cannot_hold_are_refused() {
    let place = Place::new();
    let config = place.config();
    for section in ["", "a]", "[", "a\n", "a\r"] {
        assert!(
            matches!(
                config.set(section, "k", "v", true),
                Err(ConfigError::InvalidSection)
            ),
            "{section:?}"
        );
    }
    for key in ["", "a\n", "[a", ";a", "a ;b", " a", "a = b"] {
        assert!(
            matches!(
                config.set("s", key, "v", true),
                Err(ConfigError::InvalidKey)
            ),
            "{key:?}"
        );
    }
    for value in ["a\nb", "a ; b", "a\u{1a}b", "a\0"] {
        assert!(
            matches!(
                config.set("s", "k", value, true),
                Err(ConfigError::InvalidValue)
            ),
            "{value:?}"
        );
    }
    assert_eq!(config.section("s").len(), 0);
    assert!(!place.path("etc/local.ini").exists());
}

#[test]
fn a_failed_write_changes_nothing() {
    let place = Place::new();
    place.write("file", "");
    let config = Config::load(Layers::new(place.path("file/local.ini")));
    // The path runs through a file: unreadable at start on some systems, unwritable on all.
    if let Ok(config) = config {
        let version = config.version();
        assert!(config.set("a", "x", "1", true).is_err());
        assert_eq!((config.get("a", "x"), config.version()), (None, version));
    }
}

#[test]
fn subscribers_hear_of_every_change_and_may_change_more() {
    let place = Place::new();
    let config = place.config();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (ear, inner) = (heard.clone(), config.clone());
    config.subscribe(move |change| {
        ear.lock()
            .expect("lock")
            .push((change.key.clone(), change.value.clone()));
        if change.key == "plain" {
            inner.set("a", "hashed", "h", true).expect("set");
        }
    });
    config.set("a", "plain", "p", false).expect("set");
    config.delete("a", "plain", false).expect("delete");
    place.write("etc/local.ini", "[a]\nother = o\n");
    config.reload().expect("reload");
    let expected = [
        ("plain", Some("p")),
        ("hashed", Some("h")),
        ("plain", None),
        ("hashed", None),
        ("other", Some("o")),
    ];
    let expected: Vec<_> = expected
        .map(|(k, v)| (k.to_owned(), v.map(str::to_owned)))
        .into();
    let heard: Vec<_> = heard.lock().expect("lock").clone();
    // Deleting "plain" makes the subscriber set "hashed" once more.
    let heard: Vec<_> = heard
        .into_iter()
        .enumerate()
        .filter(|(at, _)| *at != 3)
        .map(|(_, h)| h)
        .collect();
    assert_eq!(heard, expected);
    assert_eq!(config.version(), 5);
}

#[test]
fn a_file_that_is_missing_or_not_utf8_is_an_error_that_names_it() {
    let place = Place::new();
    let mut layers = place.layers();
    layers.files = vec![place.path("none.ini")];
    let error = Config::load(layers.clone())
        .expect_err("missing")
        .to_string();
    assert!(error.contains("none.ini"), "{error}");
    fs::write(place.path("none.ini"), b"[a]\nx = \xff\n").expect("write");
    assert!(matches!(
        Config::load(layers),
        Err(ConfigError::Read { .. })
    ));
}

#[test]
fn what_was_passed_over_is_reported() {
    let place = Place::new();
    place.write("etc/local.ini", "garbage\n");
    let mut layers = place.layers();
    layers.env = vec![
        ("SETTEE_TYPO".to_owned(), "secret".to_owned()),
        ("HOME".to_owned(), "/".to_owned()),
    ];
    let warnings = Config::load(layers).expect("load").warnings();
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].ends_with("line 1 is ignored"), "{warnings:?}");
    assert_eq!(
        warnings[1],
        "environment variable SETTEE_TYPO is not a setting"
    );
}

#[test]
fn files_with_secrets_are_known() {
    let place = Place::new();
    let config = place.config();
    let files = || config.files_with_secrets().expect("files");
    config.set("log", "level", "info", true).expect("set");
    assert!(files().is_empty());
    config
        .set("admins", "anna", "-pbkdf2-x", true)
        .expect("set");
    assert_eq!(files(), [place.path("etc/local.ini")]);
}

#[cfg(unix)]
#[test]
fn a_new_file_is_private_and_an_old_one_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let config = place.config();
    let mode = || {
        fs::metadata(place.path("etc/local.ini"))
            .expect("file")
            .permissions()
            .mode()
            & 0o777
    };
    config.set("a", "x", "1", true).expect("set");
    assert_eq!(mode(), 0o600);
    fs::set_permissions(
        place.path("etc/local.ini"),
        fs::Permissions::from_mode(0o640),
    )
    .expect("chmod");
    config.set("a", "x", "2", true).expect("set");
    assert_eq!(mode(), 0o640);
    fs::set_permissions(
        place.path("etc/local.ini"),
        fs::Permissions::from_mode(0o644),
    )
    .expect("chmod");
    config.set("a", "x", "3", true).expect("set");
    assert_eq!(mode(), 0o600, "everybody could read it");
}
