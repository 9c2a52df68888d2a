//! Matching of paths. The rows form a tree with a level for each segment of a path; literals come before parameters.

use std::sync::LazyLock;

use crate::captures::Captures;
use crate::route::{DatabaseRoute, Route, ServerRoute};
use crate::row::Row;
use crate::table::{UNKNOWN, rows};

/// The row and the route of a path.
#[derive(Debug)]
pub struct RouteMatch {
    /// The properties of the path.
    pub row: &'static Row,
    /// The route of this path.
    pub route: Route,
}

/// Finds the route of a path's decoded segments. Where several rows have the path, the method
/// decides.
pub fn find(method: &str, segments: &[Vec<u8>]) -> RouteMatch {
    find_in(&TREE, method, segments)
}

fn find_in(tree: &TreeNode, method: &str, segments: &[Vec<u8>]) -> RouteMatch {
    let rows = tree.rows(segments).unwrap_or_default();
    let allowed = rows.iter().find(|row| row.allows(method));
    // The last row has the text of a 405 answer.
    let row = *allowed.or(rows.last()).unwrap_or(&&UNKNOWN);
    let captures = Captures::new(row.path, segments);
    let route = match captures.invalid() {
        None => (row.route)(&captures),
        Some(0) => Route::Server(ServerRoute::NoDatabase),
        Some(_) if row.path.starts_with("/{db}") => {
            Route::Database(captures.text("db"), DatabaseRoute::InvalidId)
        }
        Some(_) => Route::Server(ServerRoute::Missing),
    };
    RouteMatch { row, route }
}

static TREE: LazyLock<TreeNode> = LazyLock::new(|| TreeNode::of(rows()));

/// A node of the tree: what the segments before it leave open.
#[derive(Default)]
pub(crate) struct TreeNode {
    /// Sorted by name.
    literals: Vec<(&'static str, TreeNode)>,
    parameter: Option<Box<TreeNode>>,
    /// Rows whose paths end here.
    here: Vec<&'static Row>,
    /// Rows whose paths continue with any number of segments.
    rest: Vec<&'static Row>,
}

impl TreeNode {
    /// Builds the tree of some rows.
    pub(crate) fn of(rows: impl Iterator<Item = &'static Row>) -> TreeNode {
        let mut tree = TreeNode::default();
        rows.for_each(|row| tree.add(row));
        tree
    }

    /// Finds the route of a path, as [`find`] does in the tree of all rows.
    #[cfg(test)]
    pub(crate) fn find(&self, method: &str, segments: &[Vec<u8>]) -> RouteMatch {
        find_in(self, method, segments)
    }

    fn add(&mut self, row: &'static Row) {
        let mut node = self;
        for part in row.path.split('/').filter(|part| !part.is_empty()) {
            if part.ends_with("...}") {
                node.rest.push(row);
                return;
            }
            node = match part.starts_with('{') {
                true => node.parameter.get_or_insert_default(),
                false => node.literal(part),
            };
        }
        node.here.push(row);
        if row.ignores_rest {
            node.rest.push(row);
        }
    }

    fn literal(&mut self, part: &'static str) -> &mut TreeNode {
        let found = self
            .literals
            .binary_search_by_key(&part, |(literal, _)| literal);
        let position = found.unwrap_or_else(|position| {
            self.literals.insert(position, (part, TreeNode::default()));
            position
        });
        &mut self.literals[position].1
    }

    /// Returns the rows of a path, of which there is at least one.
    fn rows(&self, segments: &[Vec<u8>]) -> Option<&[&'static Row]> {
        let Some((first, after)) = segments.split_first() else {
            return (!self.here.is_empty()).then_some(&self.here);
        };
        let literal = || {
            let by_name = |(literal, _): &(&str, TreeNode)| literal.as_bytes().cmp(first);
            let position = self.literals.binary_search_by(by_name).ok()?;
            self.literals[position].1.rows(after)
        };
        literal()
            .or_else(|| self.parameter.as_ref()?.rows(after))
            .or_else(|| (!self.rest.is_empty()).then_some(&*self.rest))
    }
}
