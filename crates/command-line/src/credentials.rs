//! Names and passwords of URLs.

use percent_encoding::percent_decode_str;
use url::Url;

/// The environment variable with NAME:PASSWORD for URLs without a user: every user of the machine can read a command line.
pub const CREDENTIALS: &str = "SETTEE_CREDENTIALS";

/// The environment variable with NAME:PASSWORD for the URL of `settee bench --peer`.
pub const PEER_CREDENTIALS: &str = "SETTEE_PEER_CREDENTIALS";

/// The environment variable with the URL of the source of `settee migrate`.
pub const MIGRATION_SOURCE: &str = "SETTEE_MIGRATE_SOURCE";

/// The environment variable with the URL of the target of `settee migrate`.
pub const MIGRATION_TARGET: &str = "SETTEE_MIGRATE_TO";

/// The URLs of a server or of a cluster's nodes. A comma that does not end a URL belongs to it.
pub fn nodes_of(text: &str) -> Vec<String> {
    let mut nodes: Vec<String> = vec![];
    for part in text.split(',') {
        match nodes.last_mut().filter(|_| !part.contains("://")) {
            Some(last) => last.extend([",", part]),
            None => nodes.push(part.to_owned()),
        }
    }
    nodes
}

/// The URL with name and password of the environment, unless it has its own.
pub fn with_credentials(url: &str) -> String {
    match std::env::var(CREDENTIALS) {
        Ok(credentials) => add_credentials(url, &credentials),
        Err(_) => url.to_owned(),
    }
}

fn add_credentials(url: &str, credentials: &str) -> String {
    let parsed = Url::parse(url);
    let (Ok(mut parsed), Some((name, password))) = (parsed, credentials.split_once(':')) else {
        return url.to_owned();
    };
    if parsed.username().is_empty() && parsed.password().is_none() {
        // Both fail only for URLs that can hold no credentials. They encode all that needs it but percent signs, which the
        // readers of the URL decode.
        let _ = parsed.set_username(&name.replace('%', "%25"));
        let _ = parsed.set_password(Some(&password.replace('%', "%25")));
    }
    parsed.into()
}

/// Removes name and password from a URL and returns them, decoded: they go into a header, and the URL may end up in messages.
pub fn take_credentials(url: &mut Url) -> (String, Option<String>) {
    let name = decode(url.username());
    let password = url.password().map(decode);
    // Both fail only for URLs that can hold no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    (name, password)
}

/// Removes the percent encoding of a URL's part: `a%2Fb` is `a/b`.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_divide_nodes_and_stay_in_passwords() {
        let nodes = nodes_of("http://a:x,y@h:1,http://b:2,http://c:3");
        assert_eq!(nodes, ["http://a:x,y@h:1", "http://b:2", "http://c:3"]);
        assert_eq!(nodes_of("http://a:1"), ["http://a:1"]);
    }

    #[test]
    fn credentials_are_for_urls_without() {
        for (url, wanted) in [
            ("http://127.0.0.1:5984", "http://a:b%3Ac%40@127.0.0.1:5984/"),
            ("http://x:y@127.0.0.1:5984/", "http://x:y@127.0.0.1:5984/"),
            ("no url", "no url"),
        ] {
            assert_eq!(add_credentials(url, "a:b:c@"), wanted);
        }
    }

    #[test]
    fn credentials_are_taken_out_of_a_url_decoded() {
        let mut url = Url::parse("http://a%40b:%25c%2@h:1/db").unwrap();
        let taken = take_credentials(&mut url);
        assert_eq!(taken, ("a@b".to_owned(), Some("%c%2".to_owned())));
        assert_eq!(url.as_str(), "http://h:1/db");
    }
}
