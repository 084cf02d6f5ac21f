//! Strings, each kept once.

use std::{collections::HashMap, sync::Arc};

/// The number of an interned string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub(crate) u32);

impl NameId {
    /// The empty string, which every table holds first.
    pub const EMPTY: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A table of strings. A name added twice has one number.
#[derive(Debug, Clone)]
pub struct Names {
    by_id: Vec<Arc<str>>,
    by_name: HashMap<Arc<str>, NameId>,
}

impl Default for Names {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self { by_id: vec![Arc::clone(&empty)], by_name: HashMap::from([(empty, NameId::EMPTY)]) }
    }
}

impl Names {
    /// Finds or adds a name.
    pub fn id(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let shared: Arc<str> = Arc::from(name);
        // Four thousand million different names would need more memory than the numbers.
        let id = NameId(u32::try_from(self.by_id.len()).expect("fewer than 2^32 names"));
        self.by_id.push(Arc::clone(&shared));
        self.by_name.insert(shared, id);
        id
    }

    /// A name's number if it was added.
    pub fn known(&self, name: &str) -> Option<NameId> {
        self.by_name.get(name).copied()
    }

    /// The name of a number; empty for one of another table.
    pub fn name(&self, id: NameId) -> &str {
        self.by_id.get(id.index()).map_or("", |name| name)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Never true: the empty string is always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}
