//! The guides of a tree in a table.

use crate::visible::width;

/// The guides before the label of a node: one step per level.
///
/// The steps are drawn as `│   ` (an ancestor has more children below),
/// four blanks (it has none), `├── ` (this node has a sibling below) or
/// `└── ` (it has none).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Guides(Vec<&'static str>);

const STEP: usize = 4;
const CUT: &str = "… ";

impl Guides {
    /// Returns the width of the guides in terminal columns.
    pub(crate) fn width(&self) -> usize {
        self.0.len() * STEP
    }

    /// Draws the guides in at most `limit` columns.
    ///
    /// The outermost levels are dropped first: the parent of a node matters more
    /// than its depth.
    pub(crate) fn draw(&self, limit: usize) -> String {
        if self.width() <= limit {
            return self.0.concat();
        }
        let room = limit.saturating_sub(width(CUT)) / STEP;
        let kept = &self.0[self.0.len() - room.min(self.0.len())..];
        if limit < width(CUT) { String::new() } else { format!("{CUT}{}", kept.concat()) }
    }
}

/// Draws the guides of rows from their depths, in depth-first order.
///
/// A row that is not a node has no depth; it does not end a branch.
pub(crate) fn guides(depths: &[Option<usize>]) -> Vec<Guides> {
    let mut all = vec![Guides::default(); depths.len()];
    // Whether another node of a level follows below, before its branch ends.
    let mut follows: Vec<bool> = Vec::new();
    for (guides, depth) in all.iter_mut().zip(depths).rev() {
        let Some(depth) = *depth else { continue };
        follows.resize(depth + 1, false);
        if depth > 0 {
            guides.0.extend(follows[1..depth].iter().map(|&more| if more { "│   " } else { "    " }));
            guides.0.push(if follows[depth] { "├── " } else { "└── " });
        }
        follows[depth] = true;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(depths: &[usize]) -> Vec<String> {
        let depths: Vec<_> = depths.iter().copied().map(Some).collect();
        guides(&depths).iter().map(|guides| guides.draw(80)).collect()
    }

    #[test]
    fn a_guide_runs_down_to_the_last_child() {
        let expected = ["", "├── ", "│   └── ", "└── ", "    └── "];
        assert_eq!(drawn(&[0, 1, 2, 1, 2]), expected);
    }

    #[test]
    fn a_new_root_ends_the_tree_before_it() {
        assert_eq!(drawn(&[0, 1, 0, 1]), ["", "└── ", "", "└── "]);
    }

    #[test]
    fn a_node_whose_parents_are_not_shown_is_still_indented() {
        assert_eq!(drawn(&[0, 3, 1]), ["", "│       └── ", "└── "]);
    }

    #[test]
    fn guides_too_deep_for_the_column_lose_their_outer_levels() {
        let deep = Guides(vec!["│   ", "    ", "└── "]);
        assert_eq!([12, 11, 6, 2, 1].map(|limit| deep.draw(limit)), ["│       └── ", "…     └── ", "… └── ", "… ", ""]);
    }
}
