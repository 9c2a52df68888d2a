//! Shares of scarce resources, by user and by database, so that one user or one database never has
//! all of them.

use std::net::IpAddr;
use std::sync::Arc;

use auth::{Origin, UserCtx};
use fair_queue::{Limits, Place, Queue, Requester, Share};

/// A user has at most as many feeds as there are free places.
const FEEDS_OF_USER_PERCENT: usize = 100;
/// A database has at most 19 times as many feeds as there are free places: 95 % when no other has any.
const FEEDS_OF_DATABASE_PERCENT: usize = 1900;

/// The requester that a request counts to: a user, or the address of a client without a name. The share of server
/// admins is not limited.
pub fn requester(user: &UserCtx, peer: Option<IpAddr>) -> Requester {
    match (&user.name, peer) {
        (None, Some(peer)) if !user.is_admin() => {
            Requester::address(&Origin::from(peer).to_string())
        }
        _ => node::requester(user),
    }
}

/// The share of all clients at an address, for what is needed before their names are known.
pub fn address_share(peer: IpAddr) -> Share {
    format!("address {}", Origin::from(peer)).into()
}

/// The owner of a share of memory, which server admins have too.
#[derive(Clone, Debug)]
pub struct Sharer {
    share: Share,
    is_admin: bool,
}

impl Sharer {
    /// The owner of a request's memory.
    pub fn of(user: &UserCtx, peer: Option<IpAddr>) -> Sharer {
        match requester(user, peer) {
            Requester::Client(key) => Sharer {
                share: key.into(),
                is_admin: false,
            },
            Requester::Admin | Requester::Background => Sharer::admin(),
        }
    }

    /// All server admins together, whose share is not limited.
    pub fn admin() -> Sharer {
        Sharer {
            share: "admins".into(),
            is_admin: true,
        }
    }

    /// A user of this name.
    #[cfg(test)]
    pub fn named(name: &str) -> Sharer {
        Sharer {
            share: format!("user {name}").into(),
            is_admin: false,
        }
    }

    /// Its share, which no other owner has.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Whether the share is not limited.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }
}

/// Places of feeds that wait for changes.
#[derive(Debug)]
pub struct Feeds {
    by_user: Arc<Queue>,
    by_database: Arc<Queue>,
}

/// A place among the open feeds, until it is dropped.
#[derive(Debug)]
pub struct OpenFeed {
    _of_user: Option<Place>,
    _of_database: Place,
}

/// The reason why there is no place for a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// The user has too many.
    #[error(
        "this user has too many feeds open: users share max_open_feeds ({max}), and one has at most as many as are free"
    )]
    User {
        /// Feeds at a time.
        max: usize,
    },
    /// The database has too many, or there are too many in all.
    #[error(
        "too many feeds are open, of this database or in all: databases share max_open_feeds ({max})"
    )]
    Database {
        /// Feeds at a time.
        max: usize,
    },
}

impl Default for Feeds {
    fn default() -> Feeds {
        let shared = |percent| {
            Queue::new(Limits {
                user_percent: Some(percent),
                ..Limits::new(0)
            })
        };
        Feeds {
            by_user: shared(FEEDS_OF_USER_PERCENT),
            by_database: shared(FEEDS_OF_DATABASE_PERCENT),
        }
    }
}

impl Feeds {
    /// Takes a place for a feed of a database, of `max` that there are now.
    ///
    /// # Errors
    /// [`NoPlace`]
    pub fn open(
        &self,
        max: usize,
        (user, peer): (&UserCtx, Option<IpAddr>),
        database: &Arc<str>,
    ) -> Result<OpenFeed, NoPlace> {
        self.by_user.set_places(max);
        self.by_database.set_places(max);
        let of_user = match requester(user, peer) {
            Requester::Admin | Requester::Background => None,
            Requester::Client(key) => {
                let place = self.by_user.try_place(&key.into());
                Some(place.ok_or(NoPlace::User { max })?)
            }
        };
        let of_database = self.by_database.try_place(&database.clone().into());
        Ok(OpenFeed {
            _of_user: of_user,
            _of_database: of_database.ok_or(NoPlace::Database { max })?,
        })
    }

    /// How many feeds are open.
    pub fn count(&self) -> usize {
        self.by_database.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1000;

    fn user(name: &str) -> UserCtx {
        UserCtx {
            name: Some(name.to_owned()),
            roles: vec![],
        }
    }

    fn open_all(feeds: &Feeds, user: &UserCtx, database: &str) -> (Vec<OpenFeed>, NoPlace) {
        let mut opened = vec![];
        loop {
            match feeds.open(MAX, (user, None), &database.into()) {
                Ok(feed) => opened.push(feed),
                Err(why) => return (opened, why),
            }
        }
    }

    #[test]
    fn users_and_databases_leave_feeds_to_others() {
        let feeds = Feeds::default();
        let (first, why) = open_all(&feeds, &user("a"), "one");
        assert_eq!((first.len(), why), (500, NoPlace::User { max: MAX }));
        // Another user gets feeds of that database, and of others.
        let (second, _) = open_all(&feeds, &user("b"), "one");
        assert_eq!(second.len(), 250);
        let all: Vec<_> = (0..6)
            .map(|n| open_all(&feeds, &user(&n.to_string()), "one").0)
            .collect();
        assert!(feeds.open(MAX, (&user("c"), None), &"two".into()).is_ok());
        let admin = UserCtx::admin("admin");
        assert!(feeds.open(MAX, (&admin, None), &"two".into()).is_ok());
        drop((first, second, all));
        assert_eq!(feeds.count(), 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let nobody = UserCtx::anonymous();
        let of = |address: &str| requester(&nobody, address.parse().ok());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    #[test]
    fn an_admin_leaves_feeds_of_other_databases() {
        let feeds = Feeds::default();
        let (opened, why) = open_all(&feeds, &UserCtx::admin("admin"), "one");
        assert_eq!((opened.len(), why), (950, NoPlace::Database { max: MAX }));
        let nobody = UserCtx::anonymous();
        let address = |n: u8| Some(IpAddr::from([127, 0, 0, n]));
        let two = "two".into();
        let open = |n| feeds.open(MAX, (&nobody, address(n)), &two);
        assert!(open(1).is_ok() && open(2).is_ok());
    }
}
