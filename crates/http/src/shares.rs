//! Shares of scarce resources, by user and by database, so that one user or one database never has
//! all of them.

use std::net::IpAddr;
use std::sync::Arc;

use auth::{Origin, UserCtx};
use fair_queue::{Admission, Limits, Place, Queue};

/// A user has at most as many feeds as there are free places.
const FEEDS_OF_USER_PERCENT: usize = 100;
/// A database has at most 19 times as many feeds as there are free places: 95 % when no other has any.
const FEEDS_OF_DATABASE_PERCENT: usize = 1900;

/// The owner of a share of memory, which server admins have too.
#[derive(Clone, Debug)]
pub struct Sharer {
    name: Arc<str>,
    is_admin: bool,
}

impl Sharer {
    /// The owner of a request's memory.
    pub fn of(user: &UserCtx, peer: Option<IpAddr>) -> Sharer {
        match sharer(user, peer) {
            Some(name) => Sharer {
                name,
                is_admin: false,
            },
            None => Sharer::admin(),
        }
    }

    /// All server admins together, whose share is not limited.
    pub fn admin() -> Sharer {
        Sharer {
            name: "admins".into(),
            is_admin: true,
        }
    }

    /// A user of this name.
    #[cfg(test)]
    pub fn named(name: &str) -> Sharer {
        Sharer {
            name: format!("user {name}").into(),
            is_admin: false,
        }
    }

    /// A name that no other owner has.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether the share is not limited.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }
}

/// The owner of a user's share: the name, or the address of a client without one. `None` for server
/// admins, whose share is not limited.
fn sharer(user: &UserCtx, peer: Option<IpAddr>) -> Option<Arc<str>> {
    if user.is_admin() {
        return None;
    }
    Some(match (&user.name, peer) {
        (Some(name), _) => format!("user {name}").into(),
        (None, Some(peer)) => format!("address {}", Origin::from(peer)).into(),
        (None, None) => "".into(),
    })
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
                share_percent: Some(percent),
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
        let of_user = match sharer(user, peer) {
            None => None,
            Some(name) => Some(self.by_user.try_place(&name).ok_or(NoPlace::User { max })?),
        };
        let of_database = self.by_database.try_place(database);
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

/// Places of users for lists, each for as long as its client takes its output. How many lists run in all is for the places of
/// databases to limit.
#[derive(Debug)]
pub struct Lists(Arc<Queue>);

impl Lists {
    /// `waiting_max`: how many may wait.
    pub fn new(waiting_max: usize) -> Lists {
        let limits = functions::answer_limits(waiting_max);
        Lists(Queue::new(Limits {
            waiting_max,
            slice: limits.slice,
            of_one: limits.of_one,
            // All users together have as many places as all databases. A total here would let users who wait for one database hold up
            // the lists of the others.
            ..Limits::new(usize::MAX)
        }))
    }

    /// Requests a place for a user. It is taken before that of the database, so that waiting for
    /// the latter delays no other user.
    pub fn admission(&self, user: &UserCtx, peer: Option<IpAddr>) -> Admission {
        match sharer(user, peer) {
            Some(name) => self.0.admission(&name),
            None => Admission::free(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

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

    #[tokio::test]
    async fn users_who_hold_list_places_leave_them_to_other_users() {
        let lists = Lists::new(0);
        let place = |name: String| lists.admission(&user(&name), None).now_or_never();
        let held: Vec<_> = (0..100).map(|n| place(n.to_string())).collect();
        assert!(held.iter().all(|place| matches!(place, Some(Ok(_)))));
        let of_one: Vec<_> = (0..11).map(|_| place("one".into())).collect();
        let given = of_one.iter().filter(|place| matches!(place, Some(Ok(_))));
        assert_eq!(given.count(), 10);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let nobody = UserCtx::anonymous();
        let of = |address: &str| sharer(&nobody, address.parse().ok());
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
