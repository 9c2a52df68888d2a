//! Whose places they are.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::Mutex;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Cause>>> = const { RefCell::new(None) };
}

/// The cause of a piece of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Requester {
    /// No request. The background work of all databases has one share.
    #[default]
    Background,
    /// A server admin, whose program may act for all users: each database has a share of its own.
    Admin,
    /// The key of a user, or of the address of a client without a name.
    Client(Arc<str>),
}

impl Requester {
    /// Returns the requester that a user is.
    pub fn user(name: &str) -> Requester {
        Requester::Client(format!("user {name}").into())
    }

    /// Returns the requester that a client without a name is.
    pub fn address(address: &str) -> Requester {
        Requester::Client(format!("address {address}").into())
    }

    /// Returns the share of work of this requester in a database.
    pub fn share(&self, database: &Arc<str>) -> Share {
        let user = match self {
            Requester::Background => "background".into(),
            Requester::Admin => format!("admin {database}").into(),
            Requester::Client(key) => key.clone(),
        };
        Share {
            user,
            database: database.clone(),
        }
    }

    /// Lets this thread work for this requester until the result is dropped.
    pub fn enter(&self) -> Entered {
        Arc::new(Cause::from(self.clone())).enter()
    }
}

/// The requester of a piece of work that many may wait for, such as an index build.
#[derive(Debug, Default)]
pub struct Cause(Mutex<Requester>);

impl From<Requester> for Cause {
    fn from(requester: Requester) -> Cause {
        Cause(Mutex::new(requester))
    }
}

impl Cause {
    /// Returns the cause of the work of this thread.
    pub fn current() -> Arc<Cause> {
        CURRENT.with_borrow(|current| current.clone().unwrap_or_default())
    }

    /// Lets this thread work for this cause until the result is dropped.
    pub fn enter(self: Arc<Self>) -> Entered {
        Entered(CURRENT.replace(Some(self)))
    }

    /// Returns the present requester.
    pub fn requester(&self) -> Requester {
        self.0.lock().clone()
    }

    /// Background work that a requester waits for is that requester's from now on.
    pub fn join(&self, requester: &Requester) {
        let mut own = self.0.lock();
        if *own == Requester::Background {
            *own = requester.clone();
        }
    }
}

/// The time in which a thread works for a cause. Holds the cause before it.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Entered(Option<Arc<Cause>>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The owner of places: a user, and a database of this user's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
}

impl Share {
    /// The key of the user, or of whatever else caused the work.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// The name of the database.
    pub fn database(&self) -> &Arc<str> {
        &self.database
    }
}

/// The share of a queue that is shared by one kind of owner, such as addresses.
impl From<Arc<str>> for Share {
    fn from(owner: Arc<str>) -> Share {
        Share {
            user: owner.clone(),
            database: owner,
        }
    }
}

impl From<&str> for Share {
    fn from(owner: &str) -> Share {
        Arc::<str>::from(owner).into()
    }
}

impl From<String> for Share {
    fn from(owner: String) -> Share {
        Arc::<str>::from(owner).into()
    }
}
