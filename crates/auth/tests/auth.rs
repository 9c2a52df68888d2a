//! Administrators, logins and sessions, against a real configuration.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Barrier};
use std::time::{Duration, SystemTime};

use auth::{Auth, AuthError, Basic, CookieScope, Login, Origin, UserCtx};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::{Config, Layers};
use proptest::prelude::*;
use tempfile::TempDir;

const PEER: Option<&Origin> = Some(&Origin::Address(IpAddr::V4(Ipv4Addr::LOCALHOST)));

struct Server {
    folder: TempDir,
    config: Config,
    auth: Auth,
}

impl Server {
    fn new(local_ini: &str) -> Server {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::fs::write(folder.path().join("local.ini"), local_ini).expect("write");
        Server::start(folder, Vec::new())
    }

    fn start(folder: TempDir, env: Vec<(String, String)>) -> Server {
        let mut layers = Layers::new(folder.path().join("local.ini"));
        layers.env = env;
        layers.overrides = vec![(
            "chttpd_auth".to_owned(),
            "iterations".to_owned(),
            "10".to_owned(),
        )];
        let config = Config::load(layers).expect("load");
        let auth = Auth::new(config.clone()).expect("auth");
        Server {
            folder,
            config,
            auth,
        }
    }

    fn restart(self, env: &[(&str, &str)]) -> Server {
        Server::start(
            self.folder,
            env.iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        )
    }

    fn local_ini(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("local.ini")).expect("read")
    }
}

fn admin_server() -> Server {
    Server::new("[admins]\nadmin = secret\n")
}

fn header(name: &str, password: &str) -> String {
    format!(
        "Basic {}",
        BASE64_STANDARD.encode(format!("{name}:{password}"))
    )
}

fn is_hit(auth: &Auth, header: &str) -> bool {
    matches!(auth.check_cached(header, None), Ok(Basic::Hit(_)))
}

fn let_in(auth: &Auth, name: &str, password: &str) -> bool {
    match auth.authenticate_basic(&header(name, password)) {
        Ok(user) => user.as_deref() == Some(&UserCtx::admin(name)),
        Err(AuthError::BadCredentials) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Logs in with the right password.
fn log_in(auth: &Auth, name: &str, password: &str) -> Login {
    match auth.login(name, password, "", None).expect("a login") {
        Basic::Hit(login) => login,
        Basic::Miss(pending) => pending.verify(None).expect("the right password"),
        Basic::Anonymous => panic!("nobody"),
    }
}

fn cookie(auth: &Auth, name: &str, password: &str, secs: u64) -> String {
    auth.issue_cookie(&log_in(auth, name, password), at(secs))
}

fn at(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
}

#[test]
fn plain_passwords_are_hashed_at_start_and_the_hash_is_kept() {
    let server = admin_server();
    let stored = server.config.get("admins", "admin").expect("admin");
    assert!(
        stored.starts_with("-pbkdf2:sha256-") && stored.ends_with(",10"),
        "{stored}"
    );
    assert!(server.local_ini().contains(&stored) && !server.local_ini().contains("secret\n"));
    assert!(let_in(&server.auth, "admin", "secret"));
    let server = server.restart(&[]);
    assert_eq!(server.config.get("admins", "admin"), Some(stored));
    assert!(let_in(&server.auth, "admin", "secret"));
}

#[test]
fn a_wrong_password_and_an_unknown_name_are_refused_alike() {
    let server = admin_server();
    for (name, password) in [
        ("admin", "wrong"),
        ("admin", ""),
        ("nobody", "secret"),
        ("", ""),
        ("Admin", "secret"),
    ] {
        assert!(!let_in(&server.auth, name, password), "{name}:{password}");
    }
}

#[test]
fn another_spelling_of_a_header_is_not_checked_again() {
    let server = admin_server();
    let usual = header("admin", "secret");
    assert!(!is_hit(&server.auth, &usual));
    assert!(let_in(&server.auth, "admin", "secret"));
    assert!(is_hit(&server.auth, &usual));
    let encoded = usual.strip_prefix("Basic ").expect("its scheme");
    for other in [
        format!("Basic    {encoded}"),
        format!("bASIC {encoded}"),
        format!(" Basic {encoded}\t "),
    ] {
        assert!(is_hit(&server.auth, &other), "{other}");
    }
}

#[test]
fn headers_without_credentials_are_anonymous_and_bad_base64_is_refused() {
    let auth = admin_server().auth;
    for header in ["Basic bm9jb2xvbg==", "Bearer abc", "Foo bar", "Basic", ""] {
        assert!(
            matches!(auth.authenticate_basic(header), Ok(None)),
            "{header}"
        );
    }
    assert!(matches!(
        auth.authenticate_basic("Basic ###"),
        Err(AuthError::BadBase64)
    ));
}

#[test]
fn a_password_that_was_right_is_remembered_until_it_changes() {
    let server = admin_server();
    let (auth, good, bad) = (
        &server.auth,
        header("admin", "secret"),
        header("admin", "wrong"),
    );
    assert!(!is_hit(auth, &good));
    assert!(auth.authenticate_basic(&good).is_ok() && auth.authenticate_basic(&bad).is_err());
    assert!(is_hit(auth, &good) && !is_hit(auth, &bad));
    auth.set_admin("admin", "new", true).expect("set");
    assert!(
        !is_hit(auth, &good) && !let_in(auth, "admin", "secret") && let_in(auth, "admin", "new")
    );
}

#[test]
fn an_administrator_that_is_removed_is_out_at_once() {
    let server = admin_server();
    let cookie = cookie(&server.auth, "admin", "secret", 1000);
    assert!(let_in(&server.auth, "admin", "secret"));
    server
        .config
        .delete("admins", "admin", true)
        .expect("delete");
    assert!(!let_in(&server.auth, "admin", "secret") && !server.auth.has_admins());
    let session = server.auth.check_cookie(&cookie, at(1000));
    assert!(session.expect("well formed").is_none());
}

#[test]
fn a_check_begun_before_a_change_leaves_nothing_behind() {
    let server = admin_server();
    let header = header("admin", "secret");
    let Ok(Basic::Miss(pending)) = server.auth.check_cached(&header, None) else {
        panic!("not cached yet")
    };
    server.auth.set_admin("admin", "new", true).expect("set");
    assert!(pending.verify(PEER).is_ok(), "it was right when it began");
    assert!(!is_hit(&server.auth, &header) && !let_in(&server.auth, "admin", "secret"));
}

#[test]
fn a_plain_password_set_at_run_time_is_hashed() {
    let server = Server::new("");
    assert!(!server.auth.has_admins());
    server
        .config
        .set("admins", "late", "pass", true)
        .expect("set");
    assert!(let_in(&server.auth, "late", "pass") && !server.local_ini().contains("pass\n"));
    assert!(
        server
            .config
            .get("admins", "late")
            .expect("late")
            .starts_with("-pbkdf2:")
    );
}

#[test]
fn hashes_of_older_servers_are_accepted_as_they_are() {
    let ini = "[admins]\nold = -pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096\n\
               ancient = -hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt\nbroken = -pbkdf2:x\n";
    let server = Server::new(ini);
    assert!(let_in(&server.auth, "old", "password") && let_in(&server.auth, "ancient", "password"));
    assert!(!let_in(&server.auth, "broken", "-pbkdf2:x") && server.auth.problems().len() == 1);
    assert!(server.local_ini().starts_with(ini));
}

#[test]
fn a_hash_may_be_given_instead_of_a_password() {
    let server = admin_server();
    let hash = server.auth.hash_password("other");
    server.auth.set_admin("admin", &hash, true).expect("set");
    assert_eq!(server.config.get("admins", "admin"), Some(hash));
    assert!(let_in(&server.auth, "admin", "other"));
}

#[test]
fn sessions_survive_a_restart_even_when_the_password_comes_from_the_environment() {
    let env = [("SETTEE_ADMINS_ROOT", "pass")];
    let server = Server::new("").restart(&env);
    let cookie = cookie(&server.auth, "root", "pass", 1000);
    let server = server.restart(&env);
    let session = server
        .auth
        .check_cookie(&cookie, at(1001))
        .expect("well formed")
        .expect("valid");
    assert_eq!(**session.login.user(), UserCtx::admin("root"));
    let server = server.restart(&[("SETTEE_ADMINS_ROOT", "changed")]);
    let session = server.auth.check_cookie(&cookie, at(1001));
    assert!(session.expect("well formed").is_none());
    assert!(let_in(&server.auth, "root", "changed") && !let_in(&server.auth, "root", "pass"));
}

#[test]
fn sessions_follow_the_timeout_and_end_with_the_password() {
    let server = admin_server();
    let check = |cookie: &str, secs| {
        server
            .auth
            .check_cookie(cookie, at(secs))
            .expect("well formed")
    };
    let cookie = cookie(&server.auth, "admin", "secret", 1000);
    assert_eq!(check(&cookie, 1060).map(|s| s.needs_refresh), Some(false));
    assert_eq!(check(&cookie, 1061).map(|s| s.needs_refresh), Some(true));
    assert!(check(&cookie, 1600).is_none());
    server
        .config
        .set("chttpd_auth", "timeout", "3600", false)
        .expect("set");
    assert_eq!(check(&cookie, 1600).map(|s| s.needs_refresh), Some(true));
    server.auth.set_admin("admin", "secret", true).expect("set");
    assert!(
        check(&cookie, 1000).is_none(),
        "the same password has a new salt"
    );
}

#[test]
fn bad_cookies_are_malformed_and_an_empty_one_is_none() {
    let auth = admin_server().auth;
    for value in ["garbage", "YWRtaW46NUU"] {
        assert!(
            matches!(
                auth.check_cookie(value, at(0)),
                Err(AuthError::MalformedCookie)
            ),
            "{value}"
        );
    }
    assert!(matches!(auth.check_cookie("", at(0)), Ok(None)));
}

#[test]
fn the_secret_is_made_once_and_a_lost_one_is_replaced() {
    let server = admin_server();
    let secret = server.config.get("chttpd_auth", "secret").expect("secret");
    assert_eq!(secret.len(), 32);
    let server = server.restart(&[]);
    assert_eq!(
        server.config.get("chttpd_auth", "secret").as_ref(),
        Some(&secret)
    );
    server
        .config
        .delete("chttpd_auth", "secret", true)
        .expect("delete");
    assert_ne!(
        server
            .config
            .get("chttpd_auth", "secret")
            .expect("new secret"),
        secret
    );
}

#[test]
fn logins_share_what_is_remembered_of_logins() {
    let auth = admin_server().auth;
    let Ok(Basic::Miss(pending)) = auth.login("admin", "secret", "", PEER) else {
        panic!("not cached yet")
    };
    assert_eq!(
        **pending.verify(PEER).expect("right").user(),
        UserCtx::admin("admin")
    );
    assert!(matches!(
        auth.login("admin", "secret", "", PEER),
        Ok(Basic::Hit(_))
    ));
    let Ok(Basic::Miss(pending)) = auth.login("admin", "wrong", "", PEER) else {
        panic!("never cached")
    };
    assert!(matches!(
        pending.verify(PEER),
        Err(AuthError::BadCredentials)
    ));
}

#[test]
fn five_wrong_passwords_lock_the_peer_out_of_that_name_only() {
    let server = admin_server();
    let login = |name: &str, password: &str, peer| match server.auth.login(name, password, "", peer)
    {
        Ok(Basic::Miss(pending)) => pending.verify(peer),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    for n in 0..5 {
        assert!(
            matches!(
                login("admin", &n.to_string(), PEER),
                Err(AuthError::BadCredentials)
            ),
            "{n}"
        );
        assert!(
            matches!(
                login("nobody", &n.to_string(), PEER),
                Err(AuthError::BadCredentials)
            ),
            "{n}"
        );
    }
    assert!(matches!(
        login("admin", "5", PEER),
        Err(AuthError::LockedOut)
    ));
    assert!(matches!(
        login("admin", "secret", PEER),
        Err(AuthError::LockedOut)
    ));
    // Otherwise this would reveal which names exist.
    assert!(matches!(
        login("nobody", "5", PEER),
        Err(AuthError::LockedOut)
    ));
    assert!(matches!(
        login("somebody", "5", PEER),
        Err(AuthError::BadCredentials)
    ));
    let other = Origin::from(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    let other = Some(&other);
    assert!(login("admin", "secret", other).is_ok());
}

/// Wrong passwords of a replication on this server are counted for its owner.
#[test]
fn wrong_passwords_of_replications_lock_out_nobody_else() {
    let server = admin_server();
    let login = |password: &str, origin: &Origin| {
        let basic = server.auth.login("admin", password, "", Some(origin));
        match basic {
            Ok(Basic::Miss(pending)) => pending.verify(Some(origin)),
            Ok(Basic::Hit(login)) => Ok(login),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    };
    let eves = Origin::Replication("eve".to_owned());
    for n in 0..5 {
        let refused = login(&n.to_string(), &eves);
        assert!(matches!(refused, Err(AuthError::BadCredentials)), "{n}");
    }
    assert!(matches!(login("secret", &eves), Err(AuthError::LockedOut)));
    assert!(login("secret", &Origin::Replication("admin".to_owned())).is_ok());
    assert!(login("secret", PEER.expect("an address")).is_ok());
    // Remembered by now, and refused all the same to who is locked out: it could be guessed
    // otherwise.
    assert!(matches!(login("secret", &eves), Err(AuthError::LockedOut)));
}

#[test]
fn an_empty_secret_is_made_up_anew() {
    let server = Server::new("[chttpd_auth]\nsecret =\n[admins]\nadmin = secret\n");
    let secret = server.config.get("chttpd_auth", "secret");
    assert_eq!(secret.map(|secret| secret.len()), Some(32));
}

#[test]
fn concurrent_checks_of_one_header_all_succeed() {
    let server = admin_server();
    let header = header("admin", "secret");
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (auth, header, barrier) = (server.auth.clone(), header.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                auth.authenticate_basic(&header)
                    .expect("right")
                    .expect("somebody")
            })
        })
        .collect();
    for thread in threads {
        assert!(thread.join().expect("no panic").is_admin());
    }
    assert!(is_hit(&server.auth, &header));
}

#[test]
fn the_cookie_header_names_its_attributes() {
    let auth = admin_server().auth;
    let reached = CookieScope {
        https: true,
        prefix: "",
    };
    let header = auth.set_cookie(&log_in(&auth, "admin", "secret"), at(784_111_777), reached);
    assert!(header.starts_with("AuthSession=YWRtaW46"), "{header}");
    let attributes = "; Version=1; Expires=Sun, 06 Nov 1994 08:59:37 GMT; Max-Age=600; Secure; Path=/; HttpOnly; SameSite=Lax";
    assert!(header.ends_with(attributes), "{header}");
    assert!(auth.clear_cookie(reached).starts_with("AuthSession=; "));
}

proptest! {
    #[test]
    fn hostile_headers_and_cookies_let_nobody_in(text in "(Basic |basic )?(\\PC{0,40}|[A-Za-z0-9+/=_-]{0,60})") {
        thread_local!(static SERVER: Server = admin_server());
        SERVER.with(|server| {
            prop_assert!(!matches!(server.auth.authenticate_basic(&text), Ok(Some(_))));
            prop_assert!(!matches!(server.auth.check_cookie(&text, at(0)), Ok(Some(_))));
            Ok(())
        })?;
    }
}
