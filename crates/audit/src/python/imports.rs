//! The imported names of a file.

use std::collections::HashMap;

use tree_sitter::Node;

#[derive(Debug, Default)]
pub struct Imports {
    names: HashMap<String, Imported>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The full path: `torch.cuda`.
    pub path: String,
    /// Whether it is certainly a module: `import torch.cuda as cuda`.
    pub is_module: bool,
}

impl Imports {
    pub fn get(&self, name: &str) -> Option<&Imported> {
        self.names.get(name)
    }

    /// Reads an import statement: `import torch as th`, `from torch.cuda import synchronize`.
    pub fn read(&mut self, statement: Node<'_>, text: &str) {
        let module = statement.child_by_field_name("module_name").map(|module| text_of(module, text));
        let mut cursor = statement.walk();
        for name in statement.children_by_field_name("name", &mut cursor) {
            let (path, alias) = match name.kind() {
                "aliased_import" => {
                    let part = |field| name.child_by_field_name(field).map_or("", |part| text_of(part, text));
                    (part("name"), Some(part("alias")))
                }
                _ => (text_of(name, text), None),
            };
            self.add(module, path, alias);
        }
    }

    fn add(&mut self, module: Option<&str>, path: &str, alias: Option<&str>) {
        let first = path.split('.').next().unwrap_or(path);
        let (name, path) = match (module, alias) {
            (Some(module), alias) => (alias.unwrap_or(path), format!("{module}.{path}")),
            (None, Some(alias)) => (alias, path.to_owned()),
            // `import torch.cuda` binds `torch`.
            (None, None) => (first, first.to_owned()),
        };
        self.names.insert(name.to_owned(), Imported { path, is_module: module.is_none() });
    }
}

fn text_of<'t>(node: Node<'_>, text: &'t str) -> &'t str {
    text.get(node.byte_range()).unwrap_or_default()
}
