//! Kinds of work.

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Nothing: it waits for work.
    Idle,
    /// Anything else.
    Other,
    /// New connections are accepted, and secured.
    Accept,
    /// Reading and writing sockets, parsing heads of requests and writing those of responses,
    /// scheduling tasks and timers.
    Network,
    /// Routing requests and building responses.
    Answer,
    /// Users are recognised, passwords verified.
    Auth,
    /// JSON of bodies is read.
    Parse,
    /// Documents and rows are read.
    Read,
    /// Applying edits and building batches.
    Write,
    /// Writing batches to the log on disk, and waiting for them.
    Sync,
    /// Users' functions run in this process, or are waited for.
    Functions,
    /// Building and writing rows of indexes.
    Index,
    /// Rows are sorted or merged in memory.
    Sort,
    /// Reclaiming space.
    Compaction,
    /// Changes are copied from and to other databases.
    Replication,
}

/// All states, in the order of their numbers.
pub const STATES: [State; 15] = [
    State::Idle,
    State::Other,
    State::Accept,
    State::Network,
    State::Answer,
    State::Auth,
    State::Parse,
    State::Read,
    State::Write,
    State::Sync,
    State::Functions,
    State::Index,
    State::Sort,
    State::Compaction,
    State::Replication,
];

impl State {
    /// Returns the state as metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Other => "other",
            State::Accept => "accept",
            State::Network => "network",
            State::Answer => "answer",
            State::Auth => "auth",
            State::Parse => "parse",
            State::Read => "read",
            State::Write => "write",
            State::Sync => "sync",
            State::Functions => "functions",
            State::Index => "index",
            State::Sort => "sort",
            State::Compaction => "compaction",
            State::Replication => "replication",
        }
    }

    #[inline]
    pub(crate) fn of_number(n: u8) -> State {
        STATES.get(usize::from(n)).copied().unwrap_or(State::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_in_the_list() {
        for (i, state) in STATES.iter().enumerate() {
            assert_eq!(*state as usize, i);
            assert_eq!(State::of_number(*state as u8), *state);
        }
    }
}
