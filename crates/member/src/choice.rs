//! Chooses which other node executes a request: one that answers now. A node that was cut off a
//! moment ago still counts as live, and a request to it takes until its connection breaks.

use cluster::NodeId;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// Returns the first of these nodes that reports to be up to date. If none does, returns the first
/// that answers at all: it may be able to execute the request. `ask` returns `None` for a node that
/// does not answer in time.
pub(crate) async fn ready<F: Future<Output = Option<bool>>>(
    nodes: Vec<NodeId>,
    ask: impl Fn(NodeId) -> F,
) -> Option<NodeId> {
    let asked = nodes.into_iter().map(|node| {
        let answer = ask(node);
        async move { (node, answer.await) }
    });
    let mut answers: FuturesUnordered<_> = asked.collect();
    let mut behind = None;
    while let Some((node, answer)) = answers.next().await {
        match answer {
            Some(true) => return Some(node),
            Some(false) => behind = behind.or(Some(node)),
            None => {}
        }
    }
    behind
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Was cut off a moment ago: it does not answer, and its time is not over.
    const CUT: NodeId = 1;
    const UP: NodeId = 2;
    /// Answers later than [`BEHIND`].
    const SLOW: NodeId = 3;
    const BEHIND: NodeId = 4;
    /// Cannot be reached.
    const DOWN: NodeId = 5;

    async fn answer(node: NodeId) -> Option<bool> {
        match node {
            CUT => std::future::pending().await,
            UP => Some(true),
            SLOW => {
                tokio::task::yield_now().await;
                Some(true)
            }
            BEHIND => Some(false),
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_request_waits_for_no_node_that_is_cut_off() {
        let chosen = ready(vec![CUT, DOWN, BEHIND, UP], answer);
        assert_eq!(chosen.now_or_never(), Some(Some(UP)));
        assert_eq!(ready(vec![CUT, BEHIND, SLOW], answer).await, Some(SLOW));
    }

    #[tokio::test]
    async fn without_an_up_to_date_node_one_that_answers_is_chosen() {
        assert_eq!(ready(vec![DOWN, BEHIND], answer).await, Some(BEHIND));
        assert_eq!(ready(vec![DOWN], answer).await, None);
        assert_eq!(ready(vec![], answer).await, None);
    }
}
