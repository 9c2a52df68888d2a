//! `[chttpd] authentication_handlers`: how users are recognised, in order.

/// An authentication handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// A session cookie.
    Cookie,
    /// `Authorization: Basic`.
    Basic,
    /// Headers of a proxy that has checked them.
    Proxy,
    /// `Authorization: Bearer` with a JSON Web Token.
    Jwt,
    /// None is needed: see `Auth::admit_all`. No setting names it.
    Dev,
}

impl Handler {
    /// CouchDB's name of it, in `GET /_session`; `dev` is Settee's.
    pub fn name(self) -> &'static str {
        match self {
            Handler::Cookie => "cookie",
            Handler::Basic => "default",
            Handler::Proxy => "proxy",
            Handler::Jwt => "jwt",
            Handler::Dev => "dev",
        }
    }

    /// Parses the setting, a list of Erlang tuples `{module, function}`. Returns the known handlers
    /// and the unknown functions, which authenticate nothing. When none is known, the default
    /// applies.
    pub(crate) fn parse_list(setting: &str) -> (Vec<Handler>, Vec<String>) {
        let (mut known, mut unknown) = (vec![], vec![]);
        for tuple in setting.split('{').skip(1) {
            let tuple = tuple.split('}').next().unwrap_or_default();
            let function = tuple.rsplit(',').next().unwrap_or_default().trim();
            let handler = match function {
                "cookie_authentication_handler" => Handler::Cookie,
                "default_authentication_handler" => Handler::Basic,
                "proxy_authentication_handler" | "proxy_authentification_handler" => Handler::Proxy,
                "jwt_authentication_handler" => Handler::Jwt,
                other => {
                    unknown.push(other.to_owned());
                    continue;
                }
            };
            if !known.contains(&handler) {
                known.push(handler);
            }
        }
        if known.is_empty() {
            // Without any handler no administrator could log in any more to correct this over HTTP.
            known = vec![Handler::Cookie, Handler::Basic];
        }
        (known, unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_read_in_order_and_unknown_ones_let_nobody_in() {
        let (known, unknown) = Handler::parse_list(
            "{chttpd_auth, jwt_authentication_handler}, {chttpd_auth,cookie_authentication_handler}, {chttpd_auth, null_authentication_handler}",
        );
        assert_eq!(known, [Handler::Jwt, Handler::Cookie]);
        assert_eq!(unknown, ["null_authentication_handler"]);
        for nothing in ["", "{", "x", "{chttpd_auth, null_authentication_handler}"] {
            let known = Handler::parse_list(nothing).0;
            assert_eq!(known, [Handler::Cookie, Handler::Basic], "{nothing}");
        }
    }
}
