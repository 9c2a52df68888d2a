//! The kinds of messages to a node.

/// A channel of messages to a node. Each has a queue, a connection and an order of its own, so that
/// neither delays the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Later messages supersede earlier ones: when too many wait, the oldest are dropped.
    Messages,
    /// Messages that build on each other: when too many wait, a new one is refused, so that its sender
    /// can repeat it later.
    Bulk,
}

impl Channel {
    /// Returns the path of its request.
    pub const fn path(self) -> &'static str {
        match self {
            Channel::Messages => "/messages",
            Channel::Bulk => "/bulk",
        }
    }

    /// Returns the channel of a path.
    pub fn of_path(path: &str) -> Option<Channel> {
        let all = [Channel::Messages, Channel::Bulk];
        all.into_iter().find(|channel| channel.path() == path)
    }
}
