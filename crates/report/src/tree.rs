//! The guides of a tree in a table.

use crate::visible::width;

/// The guides before the label of a node: one step per level.
///
/// The steps are drawn as `│   ` (an ancestor has more children below),
/// four blanks (it has none), `├── ` (this node has a sibling below) or
/// `└── ` (it has none).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Guides(Vec<&'static str>);

/// The columns of a level, if there is space.
pub(crate) const STEP: usize = 4;
const CUT: &str = "… ";

/// How many columns a level may take, most readable first. The last one is used if nothing fits.
const STEPS: [usize; 3] = [STEP, 2, 1];

impl Guides {
    /// Returns the width of the guides in terminal columns.
    pub(crate) fn width(&self) -> usize {
        self.0.len() * STEP
    }

    /// Draws the guides in at most `limit` columns, with `step` columns per level.
    ///
    /// The outermost levels are dropped first: the parent of a node matters more
    /// than its depth.
    pub(crate) fn draw(&self, limit: usize, step: usize) -> String {
        if self.0.len() * step <= limit {
            return self.steps(self.0.len(), step);
        }
        let space = limit.saturating_sub(width(CUT)) / step;
        if limit < width(CUT) { String::new() } else { format!("{CUT}{}", self.steps(space.min(self.0.len()), step)) }
    }

    /// The innermost levels. The guide of a node ends in a blank if it is wider than one column.
    fn steps(&self, levels: usize, step: usize) -> String {
        let kept = &self.0[self.0.len() - levels..];
        let drawn = kept.iter().map(|guide| guide.chars().take(step).collect::<String>());
        let mut drawn: Vec<String> = drawn.collect();
        if let Some(last) = drawn.last_mut().filter(|_| step == 2) {
            last.pop();
            last.push(' ');
        }
        drawn.concat()
    }
}

/// The widest step with which these guides leave half of `limit` to the label.
pub(crate) fn step_for<'a>(all: impl Iterator<Item = &'a Guides>, limit: usize) -> usize {
    let deepest = all.map(|guides| guides.0.len()).max().unwrap_or(0);
    STEPS.into_iter().find(|step| deepest * step <= limit / 2).unwrap_or(STEPS[STEPS.len() - 1])
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
        guides(&depths).iter().map(|guides| guides.draw(80, STEP)).collect()
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
    fn a_node_with_hidden_parents_is_still_indented() {
        assert_eq!(drawn(&[0, 3, 1]), ["", "│       └── ", "└── "]);
    }

    #[test]
    fn guides_too_deep_for_the_column_drop_outer_levels() {
        let deep = Guides(vec!["│   ", "    ", "└── "]);
        let drawn = [12, 11, 6, 2, 1].map(|limit| deep.draw(limit, STEP));
        assert_eq!(drawn, ["│       └── ", "…     └── ", "… └── ", "… ", ""]);
    }

    #[test]
    fn deep_levels_are_narrowed_before_any_is_dropped() {
        let deep = Guides(vec!["│   ", "    ", "└── "]);
        let steps = [24, 23, 12, 11, 6, 1].map(|limit| step_for([&deep].into_iter(), limit));
        assert_eq!(steps, [4, 2, 2, 1, 1, 1]);
        assert_eq!([2, 1].map(|step| deep.draw(12, step)), ["│   └ ", "│ └"]);
    }
}
