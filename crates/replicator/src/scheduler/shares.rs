//! Shares of the places for running jobs: a user other than a server admin has at most half of
//! them, and all such users together three quarters, as with sockets. So some remain for others,
//! however many jobs one user has.

use std::collections::HashMap;

use crate::environment::Environment;
use crate::options::Replication;

/// The owner of a job; `None`: a server admin.
pub type Owner = Option<String>;

/// Finds whose jobs are. Whether a document's owner is an admin is looked up once.
pub struct Owners<'a> {
    environment: &'a dyn Environment,
    /// Of documents, and of kept requests.
    of_documents: HashMap<Option<String>, Owner>,
    of_requests: HashMap<Option<String>, Owner>,
}

const ADMIN: &Owner = &None;

impl<'a> Owners<'a> {
    pub fn new(environment: &'a dyn Environment) -> Owners<'a> {
        Owners {
            environment,
            of_documents: HashMap::new(),
            of_requests: HashMap::new(),
        }
    }

    /// The owner: the admins, the user who requested it, or the owner of its document.
    pub fn of(&mut self, replication: &Replication) -> &Owner {
        let user = |name: &Option<String>| Some(name.clone().unwrap_or_default());
        let owner = || replication.owner().map(str::to_owned);
        if replication.has_roles() {
            if replication.user.is_admin() {
                return ADMIN;
            }
            let known = self.of_requests.entry(owner());
            return known.or_insert_with_key(user);
        }
        let environment = self.environment;
        let known = self.of_documents.entry(owner());
        known.or_insert_with_key(|name| {
            let is_admin = name.as_ref().is_some_and(|name| environment.is_admin(name));
            if is_admin { None } else { user(name) }
        })
    }
}

/// Places for running jobs, and their owners.
#[derive(Debug)]
pub struct Shares {
    places: usize,
    used: usize,
    used_by_users: usize,
    by_user: HashMap<String, usize>,
}

impl Shares {
    pub fn new(places: usize) -> Shares {
        Shares {
            places,
            used: 0,
            used_by_users: 0,
            by_user: HashMap::new(),
        }
    }

    /// How many jobs run beyond the places that there are.
    pub fn excess(&self) -> usize {
        self.used.saturating_sub(self.places)
    }

    /// Counts a job that has a place, whether there was one or not.
    pub fn add(&mut self, owner: &Owner) {
        self.used += 1;
        if let Some(user) = owner {
            self.used_by_users += 1;
            *self.by_user.entry(user.clone()).or_default() += 1;
        }
    }

    /// Removes a job from the counts.
    pub fn remove(&mut self, owner: &Owner) {
        self.used = self.used.saturating_sub(1);
        if let Some(user) = owner {
            self.used_by_users = self.used_by_users.saturating_sub(1);
            if let Some(used) = self.by_user.get_mut(user) {
                *used = used.saturating_sub(1);
            }
        }
    }

    /// Takes a place, if this owner may have another one.
    pub fn take(&mut self, owner: &Owner) -> bool {
        let may = self.may_have(owner);
        if may {
            self.add(owner);
        }
        may
    }

    /// Takes a place from another job, if that helps.
    pub fn take_from(&mut self, other: &Owner, owner: &Owner) -> bool {
        self.remove(other);
        let taken = self.take(owner);
        if !taken {
            self.add(other);
        }
        taken
    }

    fn may_have(&self, owner: &Owner) -> bool {
        if self.used >= self.places {
            return false;
        }
        let Some(user) = owner else {
            return true;
        };
        let used = self.by_user.get(user).copied().unwrap_or(0);
        let of_users = (self.places - self.places / 4).max(1);
        used < (self.places / 2).max(1) && self.used_by_users < of_users
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Owner {
        Some(name.to_owned())
    }

    fn taken(shares: &mut Shares, owner: &Owner) -> usize {
        (0..1000).filter(|_| shares.take(owner)).count()
    }

    #[test]
    fn a_user_has_half_users_three_quarters_and_admins_the_rest() {
        let mut shares = Shares::new(16);
        assert_eq!(taken(&mut shares, &user("eve")), 8);
        assert_eq!(taken(&mut shares, &user("mallory")), 4);
        assert_eq!(taken(&mut shares, &None), 4);
        shares.remove(&user("eve"));
        assert_eq!(taken(&mut shares, &user("mallory")), 1);
        assert_eq!(taken(&mut Shares::new(16), &None), 16);
        for places in [1, 2] {
            assert_eq!(taken(&mut Shares::new(places), &user("eve")), 1);
        }
        assert_eq!(taken(&mut Shares::new(0), &user("eve")), 0);
    }

    #[test]
    fn a_place_is_taken_over_only_by_who_may_have_it() {
        let mut shares = Shares::new(4);
        taken(&mut shares, &user("eve"));
        taken(&mut shares, &None);
        assert!(!shares.take_from(&None, &user("eve")), "two are hers");
        assert!(shares.take_from(&user("eve"), &user("eve")));
        assert!(shares.take_from(&user("eve"), &user("mallory")));
        assert!(shares.take_from(&user("eve"), &None));
        assert_eq!(shares.excess(), 0);
        shares.add(&None);
        assert_eq!(shares.excess(), 1);
    }
}
