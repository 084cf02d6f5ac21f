//! A kernel that does not compile, shown with its source lines.

use std::fmt;

use thiserror::Error;

/// Context lines before and after the error.
const LINES_AROUND: usize = 2;

/// Why a kernel does not compile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct CompileError {
    /// The kernel's file.
    pub file: String,
    /// The compiler errors, in order.
    pub problems: Vec<Problem>,
    /// The whole compiler log.
    pub log: String,
}

/// One error of the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The message.
    pub message: String,
    /// The surrounding lines, with their numbers.
    pub excerpt: Vec<(usize, String)>,
}

impl CompileError {
    /// Parses the compiler's log for a source.
    pub fn new(file: &str, source: &str, log: &str) -> Self {
        let problems = log.lines().filter_map(|line| problem(file, source, line)).collect();
        Self { file: file.to_owned(), problems, log: log.trim().to_owned() }
    }
}

/// Parses a line such as `fill.cu(12): error: identifier "x" is undefined`.
fn problem(file: &str, source: &str, said: &str) -> Option<Problem> {
    let (number, rest) = said.strip_prefix(file)?.strip_prefix('(')?.split_once(')')?;
    let line = number.parse().ok()?;
    let (kind, message) = rest.strip_prefix(": ")?.split_once(": ")?;
    // The compiler numbers some errors: `error #20`, and `catastrophic error`.
    kind.contains("error").then(|| Problem { line, message: message.to_owned(), excerpt: excerpt(source, line) })
}

fn excerpt(source: &str, line: usize) -> Vec<(usize, String)> {
    let first = line.saturating_sub(LINES_AROUND).max(1);
    let numbered = source.lines().enumerate().map(|(at, text)| (at + 1, text.to_owned()));
    numbered.skip(first - 1).take_while(|(number, _)| *number <= line.saturating_add(LINES_AROUND)).collect()
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}` does not compile", self.file)?;
        if self.problems.is_empty() {
            return self.log.lines().try_for_each(|line| write!(f, "\n  {line}"));
        }
        for problem in &self.problems {
            write!(f, "\n  line {}: {}", problem.line, problem.message)?;
            for (number, text) in &problem.excerpt {
                let pointer = if *number == problem.line { '>' } else { ' ' };
                write!(f, "\n  {pointer} {number:>4} | {text}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "// fills\nextern \"C\" __global__\nvoid fill(float* out) {\n    out[0] = value;\n}\n";

    #[test]
    fn an_error_shows_the_lines_around_it() {
        let log = "fill.cu(4): error: identifier \"value\" is undefined\n      out[0] = value;\n               ^\n\n\
                   1 error detected in the compilation of \"fill.cu\".\n";
        assert_eq!(
            CompileError::new("fill.cu", SOURCE, log).to_string(),
            "kernel `fill.cu` does not compile\n  line 4: identifier \"value\" is undefined\n\
             \x20      2 | extern \"C\" __global__\n\
             \x20      3 | void fill(float* out) {\n\
             \x20 >    4 |     out[0] = value;\n\
             \x20      5 | }"
        );
    }

    #[test]
    fn warnings_are_no_problems() {
        let log = "fill.cu(3): warning #177-D: variable \"x\" was declared but never referenced";
        assert_eq!(CompileError::new("fill.cu", SOURCE, log).problems, []);
    }

    #[test]
    fn a_log_of_another_form_is_shown_whole() {
        let error = CompileError::new("fill.cu", SOURCE, "nvrtc: error: invalid value for --gpu-architecture\n");
        assert_eq!(
            error.to_string(),
            "kernel `fill.cu` does not compile\n  nvrtc: error: invalid value for --gpu-architecture"
        );
    }

    #[test]
    fn a_line_that_is_not_there_has_no_excerpt() {
        let error = CompileError::new("fill.cu", SOURCE, &format!("fill.cu({}): error: odd", usize::MAX));
        assert_eq!(error.problems[0].excerpt, []);
        assert_eq!(CompileError::new("fill.cu", SOURCE, "fill.cu(0): error: odd").problems[0].excerpt.len(), 2);
    }
}
