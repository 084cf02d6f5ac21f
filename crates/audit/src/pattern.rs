//! Patterns in which `*` matches anything.

pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether a path, or its end after a `/`, matches a pattern.
pub fn matches_path(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_start_matches("./");
    matches(pattern, path.trim_start_matches("./")) || matches(&format!("*/{pattern}"), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_by_its_end() {
        for path in ["src/sampler.rs", "./src/sampler.rs", "a/b/src/sampler.rs", "/a/src/sampler.rs"] {
            assert!(matches_path("src/sampler.rs", path) && matches_path("src/*", path), "{path}");
        }
        assert!(!matches_path("src/sampler.rs", "xsrc/sampler.rs") && !matches_path("sampler", "src/sampler.rs"));
    }
}
