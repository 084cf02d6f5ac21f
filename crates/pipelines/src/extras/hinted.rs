//! Errors with advice.

/// An error with advice that only the code that raised it can give.
#[derive(Debug)]
pub struct Hinted {
    error: anyhow::Error,
    hint: String,
}

impl Hinted {
    /// Adds a hint to an error.
    pub fn wrap(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { error: error.into(), hint: hint.into() })
    }

    /// The advice.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Hinted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
