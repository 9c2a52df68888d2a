//! Users and roles, as access sets name them.

/// Maximum length of a principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 512;
/// Maximum number of a user's roles that count. Further ones match nothing.
const ROLES_MAX: usize = 253;

const EVERYBODY: &str = "*";
const ROLE: &str = "role:";
/// All users with a login.
const USERS: &str = "role:_users";

/// A user, a role, or all users.
///
/// ```
/// use document::Principal;
/// assert!(Principal::parse("alice").is_some());
/// assert!(Principal::parse("role:nurse").is_some());
/// assert!(Principal::parse("*").is_some());
/// assert!(Principal::parse("group:nurse").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Box<str>);

impl Principal {
    /// Reads a principal as a document names it: the name of a user, `role:` with a role, or `*`.
    pub fn parse(text: &str) -> Option<Principal> {
        let is_valid = match text.strip_prefix(ROLE) {
            Some(role) => !role.is_empty(),
            None => !text.is_empty() && !text.contains(':'),
        };
        (is_valid && text.len() <= PRINCIPAL_BYTES_MAX).then(|| Principal(text.into()))
    }

    /// All users that the database admits.
    pub(super) fn everyone() -> Principal {
        Principal(EVERYBODY.into())
    }

    /// Returns whether it is all users that the database admits.
    pub(super) fn is_everyone(&self) -> bool {
        &*self.0 == EVERYBODY
    }

    /// Returns whether it is all users with a login.
    pub(super) fn is_users(&self) -> bool {
        &*self.0 == USERS
    }

    /// Returns whether it is a role, or all users with a login.
    pub(super) fn is_role(&self) -> bool {
        self.0.starts_with(ROLE)
    }

    /// Returns it as a document names it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The principals that one user is, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principals(Box<[Principal]>);

impl Principals {
    /// Returns the principals of a user. `None` is an anonymous one. A name that looks like a role
    /// or like `*`, which a token or a proxy may have given, matches nothing.
    ///
    /// ```
    /// use document::Principals;
    /// let names = |name, roles: &[&'static str]| {
    ///     let all = Principals::of(name, roles.iter().copied());
    ///     all.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>()
    /// };
    /// assert_eq!(names(None, &[]), ["*"]);
    /// assert_eq!(names(Some("al"), &["nurse"]), ["*", "al", "role:_users", "role:nurse"]);
    /// assert_eq!(names(Some("role:nurse"), &[]), ["*", "role:_users"]);
    /// ```
    pub fn of<'a>(name: Option<&str>, roles: impl IntoIterator<Item = &'a str>) -> Principals {
        let mut all = vec![Principal::everyone()];
        if let Some(name) = name {
            all.push(Principal(USERS.into()));
            let is_user = !name.contains(':') && name != EVERYBODY;
            all.extend(is_user.then(|| Principal::parse(name)).flatten());
        }
        let roles = roles.into_iter().take(ROLES_MAX);
        all.extend(roles.filter_map(|role| Principal::parse(&format!("{ROLE}{role}"))));
        all.sort_unstable();
        all.dedup();
        Principals(all.into())
    }

    /// Returns all of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Principal> {
        self.0.iter()
    }

    /// Returns those of the principals that `keeps` returns true for.
    pub fn filter(&self, keeps: impl Fn(&Principal) -> bool) -> Principals {
        Principals(self.0.iter().filter(|one| keeps(one)).cloned().collect())
    }

    /// Returns whether the user is this principal.
    pub fn contains(&self, principal: &Principal) -> bool {
        self.0.binary_search(principal).is_ok()
    }
}
