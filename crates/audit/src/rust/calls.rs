//! Classifies calls in Rust: names, arguments, and whether the call iterates over elements.

use syn::{Expr, Path};

use crate::paths::Language;
use crate::rules::{Form, Needs, Rule, Rules};

/// The maximum length of a call chain such as `x.flatten_all()?.to_device(&Device::Cpu)?`.
const MOST_LINKS: usize = 64;

pub enum Verdict<'r> {
    Waits(&'r Rule),
    /// It may copy to the CPU: the device is not a literal.
    Unknown,
}

/// Finds the rule for a call by its name.
pub fn judge<'r, 'a>(
    rules: &'r Rules,
    path: &[&str],
    mut arguments: impl Iterator<Item = &'a Expr> + Clone,
) -> Option<Verdict<'r>> {
    let fitting = rules.of(Language::Rust).filter(|rule| rule.fits(path));
    let mut fitting = fitting.filter(|rule| matches!(rule.form, Form::Any | Form::Function | Form::Method));
    fitting.find_map(|rule| match rule.needs {
        Needs::Nothing => Some(Verdict::Waits(rule)),
        Needs::NoArguments => arguments.next().is_none().then_some(Verdict::Waits(rule)),
        Needs::OneArgument => (arguments.clone().count() == 1).then_some(Verdict::Waits(rule)),
        Needs::Cpu => Some(match arguments.clone().last().map(device) {
            Some(Device::Cpu) => Verdict::Waits(rule),
            Some(Device::Unknown) => Verdict::Unknown,
            Some(Device::Other) | None => return None,
        }),
    })
}

enum Device {
    Cpu,
    Other,
    Unknown,
}

/// The device that an argument names.
fn device(argument: &Expr) -> Device {
    match bare(argument) {
        Expr::Path(path) => match last_name(&path.path).as_deref() {
            Some("Cpu") => Device::Cpu,
            Some("Cuda" | "Metal") => Device::Other,
            _ => Device::Unknown,
        },
        _ => Device::Unknown,
    }
}

/// An expression without surrounding references and parentheses.
fn bare(mut expression: &Expr) -> &Expr {
    for _ in 0..MOST_LINKS {
        expression = match expression {
            Expr::Reference(inner) => &inner.expr,
            Expr::Paren(inner) => &inner.expr,
            Expr::Group(inner) => &inner.expr,
            _ => break,
        };
    }
    expression
}

pub fn names(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn last_name(path: &Path) -> Option<String> {
    path.segments.last().map(|segment| segment.ident.to_string())
}

/// The receiver of the next link of a chain.
fn inner(expression: &Expr) -> Option<&Expr> {
    Some(match expression {
        Expr::MethodCall(call) => &call.receiver,
        Expr::Try(inner) => &inner.expr,
        Expr::Await(inner) => &inner.base,
        Expr::Field(inner) => &inner.base,
        Expr::Index(inner) => &inner.expr,
        Expr::Paren(inner) => &inner.expr,
        Expr::Group(inner) => &inner.expr,
        Expr::Reference(inner) => &inner.expr,
        Expr::Cast(inner) => &inner.expr,
        _ => return None,
    })
}

/// A chain of expressions, outermost first.
fn chain(expression: &Expr) -> impl Iterator<Item = &Expr> {
    std::iter::successors(Some(expression), |expression| inner(expression)).take(MOST_LINKS)
}

/// Whether a call chain has already copied its data to the host.
pub fn is_read(rules: &Rules, expression: &Expr) -> bool {
    chain(expression).any(|link| {
        let Expr::MethodCall(call) = link else { return false };
        let name = call.method.to_string();
        matches!(judge(rules, &[&name], call.args.iter()), Some(Verdict::Waits(rule)) if rule.is_read)
    })
}

/// Adaptors that only iterators have; they call their closure for every element.
const ADAPTORS: &str = "all any by_key dedup_by dedup_by_key filter_map find_map flat_map fold for_each from_fn map_while max_by \
     max_by_key min_by min_by_key partition position reduce retain retain_mut rposition scan skip_while sort_by \
     sort_by_cached_key sort_by_key sort_unstable_by sort_unstable_by_key take_while try_fold try_for_each successors";

/// Adaptors that `Option` and `Result` have too; there they call the closure once.
const SHARED_ADAPTORS: &str = "map filter inspect find";

/// Methods that return an iterator.
const ITERATORS: &str = "iter iter_mut into_iter par_iter par_iter_mut into_par_iter chars bytes lines windows chunks chunks_exact \
     par_chunks enumerate zip rev keys values drain split split_whitespace skip take step_by chain cloned";

/// Whether a method calls its closures for every element of its receiver.
pub fn goes_through(method: &str, receiver: &Expr) -> bool {
    let is_among = |name: &str, list: &str| list.split(' ').any(|known| known == name);
    let is_iterator = || {
        chain(receiver).any(|link| match link {
            Expr::MethodCall(call) => {
                let name = call.method.to_string();
                is_among(&name, ITERATORS) || is_among(&name, ADAPTORS)
            }
            Expr::Range(_) => true,
            _ => false,
        })
    };
    is_among(method, ADAPTORS) || is_among(method, SHARED_ADAPTORS) && is_iterator()
}
