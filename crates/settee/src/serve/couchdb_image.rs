//! The environment variables of CouchDB's container image, so that only the image's name has to
//! change.

use std::fs;

use crate::Failure;

/// The message when there is no admin; CouchDB's image prints a similar one in this case.
pub const NO_ADMIN: &str = "there is no admin, and without one databases cannot be created. Do one of these:
  -e COUCHDB_USER=NAME -e COUCHDB_PASSWORD=PASSWORD            an admin
  -e COUCHDB_USER_FILE=FILE -e COUCHDB_PASSWORD_FILE=FILE      the same, from files such as secrets
or write a line `NAME = PASSWORD` under [admins] in local.ini or a file of local.d in the data directory.";

/// The settings that the environment variables of CouchDB's image define, as environment variables.
/// `variable` returns one variable.
///
/// # Errors
///
/// A name without a password, or a password without a name, is an error, and so is a file that cannot be read.
pub fn settings_of(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, Failure> {
    let value = |name: &str| value_of(name, &variable);
    let mut settings = vec![];
    match (value("COUCHDB_USER")?, value("COUCHDB_PASSWORD")?) {
        (Some(user), Some(password)) => {
            settings.push((format!("SETTEE__admins__{user}"), password));
        }
        (None, None) => {}
        (Some(_), None) => {
            return Err(Failure::usage(
                "COUCHDB_USER is set, but COUCHDB_PASSWORD is not",
            ));
        }
        (None, Some(_)) => {
            return Err(Failure::usage(
                "COUCHDB_PASSWORD is set, but COUCHDB_USER is not",
            ));
        }
    }
    if let Some(secret) = value("COUCHDB_SECRET")? {
        settings.push(("SETTEE__chttpd_auth__secret".to_owned(), secret));
    }
    if let Some(zone) = value("COUCHDB_ZONE")? {
        settings.push(("SETTEE__cluster__zone".to_owned(), zone));
    }
    Ok(settings)
}

/// A variable, or the contents of the file that its `_FILE` names. An empty value counts as absent:
/// Compose passes variables that are not set as empty ones.
fn value_of(
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, Failure> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(value) = set(name) {
        return Ok(Some(value));
    }
    let Some(file) = set(&format!("{name}_FILE")) else {
        return Ok(None);
    };
    let text = fs::read_to_string(&file);
    let text = text.map_err(|e| Failure::usage(format!("{name}_FILE: {file}: {e}")))?;
    // Editors end the last line; the shell that reads the file in CouchDB's image takes that off too.
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(Failure::usage(format!("{name}_FILE: {file} is empty"))),
        value => Ok(Some(value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        settings_of(variable).map_err(|e| e.message)
    }

    #[test]
    fn variables_are_settings() {
        let found = settings(&[
            ("COUCHDB_USER", "Alice"),
            ("COUCHDB_PASSWORD", "secret"),
            ("COUCHDB_SECRET", "s"),
            ("COUCHDB_ZONE", "east"),
        ]);
        let wanted = [
            ("SETTEE__admins__Alice", "secret"),
            ("SETTEE__chttpd_auth__secret", "s"),
            ("SETTEE__cluster__zone", "east"),
        ];
        assert_eq!(
            found.unwrap(),
            wanted.map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert_eq!(
            settings(&[("COUCHDB_USER", ""), ("COUCHDB_PASSWORD", "")]),
            Ok(vec![])
        );
    }

    #[test]
    fn files_stand_for_variables() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        fs::write(&path, "two words\n").unwrap();
        let file = path.to_str().unwrap();
        let variables = [("COUCHDB_USER", "alice"), ("COUCHDB_PASSWORD_FILE", file)];
        let wanted = vec![("SETTEE__admins__alice".to_owned(), "two words".to_owned())];
        assert_eq!(settings(&variables), Ok(wanted));
        fs::write(&path, "\n").unwrap();
        assert!(settings(&variables).unwrap_err().contains("is empty"));
        fs::remove_file(&path).unwrap();
        assert!(
            settings(&variables)
                .unwrap_err()
                .contains("COUCHDB_PASSWORD_FILE")
        );
    }

    #[test]
    fn one_of_name_and_password_is_a_mistake() {
        assert!(settings(&[("COUCHDB_USER", "alice")]).is_err());
        assert!(settings(&[("COUCHDB_PASSWORD", "secret")]).is_err());
    }
}
