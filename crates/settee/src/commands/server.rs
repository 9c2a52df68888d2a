//! The server that a command is a client of.

use command_line::{
    LoginPlace, RefusedRequest, connection_failure, not_settee, server_url, take_credentials,
    with_credentials,
};
use reqwest::{ClientBuilder, Method, RequestBuilder, Response, Url};
use serde_json::Value;

use crate::Failure;

/// A server, and the user of its requests.
pub struct Server {
    client: reqwest::Client,
    /// Without credentials, path and query.
    url: Url,
    name: String,
    password: Option<String>,
}

impl Server {
    /// Reads a URL, whose credentials may be in the environment.
    ///
    /// # Errors
    /// A mistake in the URL, in one line.
    pub fn new(url: &str, client: ClientBuilder) -> Result<Server, Failure> {
        // reqwest takes the process's provider; ring builds without a C toolchain of its own. Set already is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut url = server_url(&with_credentials(url))?;
        let (name, password) = take_credentials(&mut url);
        url.set_path("");
        url.set_query(None);
        url.set_fragment(None);
        Ok(Server {
            client: client.build().map_err(Failure::new)?,
            url,
            name,
            password,
        })
    }

    /// Returns the URL, without credentials.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns whether the user has a name.
    pub fn has_login(&self) -> bool {
        !self.name.is_empty()
    }

    /// A request to a path with an optional query.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut url = self.url.clone();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        url.set_path(path);
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        let request = self.client.request(method, url);
        match self.has_login() {
            true => request.basic_auth(&self.name, self.password.as_ref()),
            false => request,
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Why the server did not answer.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        request.send().await.map_err(|e| self.silence(&e))
    }

    /// Sends a request, and returns the body of the response, which must be a success. `needs` names the users who may send
    /// it, like `an admin`.
    ///
    /// # Errors
    /// Why the server did not answer, or refused.
    pub async fn json(&self, request: RequestBuilder, needs: &str) -> Result<Value, Failure> {
        match self.answer(request).await? {
            (200..=299, Some(body)) => Ok(body),
            (status, body) => Err(self.refusal(status, &body.unwrap_or_default(), needs)),
        }
    }

    /// As [`Server::json`] does, of a path that only a Settee has.
    ///
    /// # Errors
    /// Those of [`Server::json`], and that the server is not a Settee.
    pub async fn settee_json(&self, path: &str, needs: &str) -> Result<Value, Failure> {
        match self.answer(self.request(Method::GET, path)).await? {
            (200, Some(body)) => Ok(body),
            // CouchDB takes the path for a database's.
            (400 | 404, Some(_)) => Err(self.not_settee()),
            (status, body) => Err(self.refusal(status, &body.unwrap_or_default(), needs)),
        }
    }

    /// The status and the body, if that is JSON.
    async fn answer(&self, request: RequestBuilder) -> Result<(u16, Option<Value>), Failure> {
        let response = self.send(request).await?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|e| self.silence(&e))?;
        Ok((status, serde_json::from_slice(&body).ok()))
    }

    /// Describes why the server did not answer.
    pub fn silence(&self, error: &reqwest::Error) -> Failure {
        Failure::new(connection_failure(&self.url, error))
    }

    /// Describes a refusal with this status and body.
    pub fn refusal(&self, status: u16, body: &Value, needs: &str) -> Failure {
        let refused = RefusedRequest {
            status,
            reason: body["reason"].as_str(),
            has_login: self.has_login(),
            needs,
            login_place: LoginPlace::UrlOrCredentials,
            location: None,
        };
        Failure::new(refused.description(&self.url))
    }

    /// Describes a server without Settee's paths.
    pub fn not_settee(&self) -> Failure {
        Failure::new(not_settee(&self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_login_and_no_part_of_the_urls_path() {
        let server = Server::new("http://a%40b:c@h:1/db?x=y#z", reqwest::Client::builder());
        let server = server.unwrap();
        let request = server.request(Method::GET, "/_settee/top?all=true");
        let request = request.build().unwrap();
        assert_eq!(request.url().as_str(), "http://h:1/_settee/top?all=true");
        let login = request.headers().get("authorization").unwrap();
        assert_eq!(login, "Basic YUBiOmM=");
    }

    #[test]
    fn a_mistake_in_a_url_is_a_wrong_command_line() {
        for url in ["h:1", "ftp://h", "http://h:x"] {
            let failure = Server::new(url, reqwest::Client::builder()).err().unwrap();
            assert_eq!(failure.status, 2, "{url}");
        }
    }
}
