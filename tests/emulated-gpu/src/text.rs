//! Parses PTX: the variables and kernels of a module, and the statements of a kernel.

use std::collections::HashMap;

/// A variable of a module or kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub space: String,
    pub name: String,
    pub align: usize,
    pub bytes: usize,
    /// The initial bytes, which may be fewer.
    pub initial: Vec<u8>,
}

/// The text of one kernel.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub name: String,
    /// Name, alignment and bytes of each parameter.
    pub parameters: Vec<Variable>,
    /// Blocks of a cluster.
    pub cluster: [u32; 3],
    pub body: String,
}

/// A module.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModuleText {
    pub variables: Vec<Variable>,
    pub entries: Vec<Entry>,
}

/// An operand in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A register, label, variable or special register.
    Name(String),
    /// A number, or the bits of a float.
    Number(u64),
    Many(Vec<Operand>),
    /// `[base + offset]`, with coordinates for tensors.
    Place {
        base: Box<Operand>,
        offset: i64,
        coordinates: Vec<Operand>,
    },
}

/// One instruction.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// The guarding predicate and whether it is negated.
    pub guard: Option<(String, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
    /// The line of the source.
    pub line: u32,
    pub scope: usize,
}

/// The statements of a kernel, and the declarations of their scopes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub statements: Vec<Statement>,
    /// The parent of each scope; the first is its own parent.
    pub parents: Vec<usize>,
    /// By scope and name, or by prefix for `%r<8>`: the type.
    pub registers: HashMap<(usize, String), String>,
    /// By scope and name: the number of the next statement.
    pub labels: HashMap<(usize, String), usize>,
    pub variables: Vec<Variable>,
}

/// Reads a module.
pub(crate) fn module(text: &str) -> Result<ModuleText, String> {
    let text = without_comments(text);
    let mut module = ModuleText::default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let word = rest.split(|c: char| c.is_whitespace()).next().unwrap_or_default();
        let end = match word {
            ".version" | ".target" | ".address_size" | ".file" => rest.find('\n').unwrap_or(rest.len()),
            ".section" => rest.find('}').map_or(rest.len(), |at| at + 1),
            _ => {
                let brace = rest.find('{').unwrap_or(rest.len());
                let semicolon = rest.find(';').unwrap_or(rest.len());
                let head = &rest[..brace.min(semicolon)];
                if head.contains(".entry") {
                    let end = brace + matching(&rest[brace..]).ok_or("a kernel does not end")?;
                    module.entries.push(entry(head, &rest[brace + 1..end - 1])?);
                    end
                } else if head.contains(".func") {
                    return Err(format!("functions are not supported: {}", first_line(head)));
                } else {
                    module.variables.push(variable(&rest[..semicolon])?);
                    (semicolon + 1).min(rest.len())
                }
            }
        };
        rest = rest[end..].trim_start();
    }
    Ok(module)
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(String::new(), |mut all, line| {
        all.push_str(line);
        all.push('\n');
        all
    })
}

/// The bytes up to and including the matching brace.
fn matching(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

fn entry(head: &str, body: &str) -> Result<Entry, String> {
    let name_on = head.split(".entry").nth(1).unwrap_or_default();
    let (name, rest) = name_on.split_once('(').unwrap_or((name_on, ""));
    let (parameters, directives) = rest.rsplit_once(')').unwrap_or(("", name_on));
    let parameters = split(parameters).into_iter().map(variable).collect::<Result<_, _>>()?;
    let mut cluster = [1; 3];
    if let Some((_, given)) = directives.split_once(".reqnctapercluster") {
        for (to, size) in cluster.iter_mut().zip(given.split([',', '\n', '.'])) {
            *to = size.trim().parse().map_err(|_| format!("the size of a cluster: {}", first_line(given)))?;
        }
    }
    let name = name.split_whitespace().next().unwrap_or_default().to_owned();
    Ok(Entry { name, parameters, cluster, body: body.to_owned() })
}

/// `.shared .align 4 .b8 name[128] = {...}`.
fn variable(text: &str) -> Result<Variable, String> {
    let wrong = || format!("a variable: {}", first_line(text));
    let (declared, values) = text.split_once('=').unwrap_or((text, ""));
    let (mut align, mut size, mut space) = (0, 0, "");
    let mut words = declared.split_whitespace();
    let mut name = "";
    while let Some(word) = words.next() {
        match word {
            ".align" => align = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?,
            ".param" | ".shared" | ".global" | ".local" | ".const" => space = word,
            _ if word.starts_with('.') => size = bytes_of(word).unwrap_or(size),
            _ => name = word,
        }
    }
    let (name, count) = match name.split_once('[') {
        Some((name, "]")) => (name, 0),
        Some((name, count)) => (name, count.trim_end_matches(']').parse().map_err(|_| wrong())?),
        None => (name, 1),
    };
    let numbers = split(values.trim().trim_matches(['{', '}']));
    let numbers = numbers.into_iter().filter(|number| !number.is_empty()).map(number);
    let numbers = numbers.collect::<Option<Vec<u64>>>().ok_or_else(wrong)?;
    let initial = numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(size)).collect();
    Ok(Variable {
        space: space.to_owned(),
        name: name.to_owned(),
        align: align.max(size),
        bytes: size * count,
        initial,
    })
}

fn bytes_of(word: &str) -> Option<usize> {
    let bits: usize = word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
    matches!(bits, 8 | 16 | 32 | 64).then_some(bits / 8)
}

/// Splits at commas outside braces and brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    if !text[from..].trim().is_empty() {
        parts.push(text[from..].trim());
    }
    parts
}

/// A number: `-1`, `0x7f`, `0f3F800000`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('U');
    if let Some(hex) = ["0x", "0f", "0F", "0d", "0D"].iter().find_map(|start| text.strip_prefix(start)) {
        return u64::from_str_radix(hex, 16).ok();
    }
    text.parse::<i64>().map(|value| value as u64).or_else(|_| text.parse()).ok()
}

fn operand(text: &str) -> Result<Operand, String> {
    let inner = |open, close| text.strip_prefix(open).and_then(|text| text.strip_suffix(close));
    if let Some(inner) = inner('{', '}') {
        return Ok(Operand::Many(split(inner).into_iter().map(operand).collect::<Result<_, _>>()?));
    }
    if let Some(inner) = inner('[', ']') {
        let parts = split(inner);
        let place = parts.first().ok_or("an empty address")?;
        let (base, offset) = place.split_once('+').unwrap_or((place, "0"));
        let offset = number(offset.trim()).ok_or_else(|| format!("an offset: {place}"))? as i64;
        let coordinates = match parts.get(1).map(|part| operand(part)).transpose()? {
            Some(Operand::Many(all)) => all,
            _ => Vec::new(),
        };
        return Ok(Operand::Place { base: Box::new(operand(base.trim())?), offset, coordinates });
    }
    Ok(number(text).map_or_else(|| Operand::Name(text.to_owned()), Operand::Number))
}

/// Reads the statements of a kernel.
pub(crate) fn body(text: &str) -> Result<Body, String> {
    let mut body = Body { parents: vec![0], ..Body::default() };
    let (mut scope, mut line, mut rest) = (0, 0, text.trim_start());
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('{') {
            body.parents.push(scope);
            (scope, rest) = (body.parents.len() - 1, inner.trim_start());
            continue;
        }
        if let Some(outer) = rest.strip_prefix('}') {
            (scope, rest) = (body.parents[scope], outer.trim_start());
            continue;
        }
        if rest.starts_with(".loc") && !rest.starts_with(".local") {
            let (words, after) = rest.split_once('\n').unwrap_or((rest, ""));
            line = words.split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(line);
            rest = after.trim_start();
            continue;
        }
        let colon = rest.find(|c: char| !(c.is_alphanumeric() || "_$%".contains(c))).unwrap_or(rest.len());
        if rest[colon..].starts_with(':') {
            body.labels.insert((scope, rest[..colon].to_owned()), body.statements.len());
            rest = rest[colon + 1..].trim_start();
            continue;
        }
        let (words, after) = rest.split_once(';').ok_or_else(|| format!("no end: {}", first_line(rest)))?;
        body.add(words.trim(), scope, line)?;
        rest = after.trim_start();
    }
    Ok(body)
}

impl Body {
    fn add(&mut self, words: &str, scope: usize, line: u32) -> Result<(), String> {
        if let Some(declared) = words.strip_prefix(".reg") {
            let (kind, names) = declared.trim().split_once(char::is_whitespace).ok_or("a register without a name")?;
            for name in split(names) {
                let name = name.split_once('<').map_or(name, |(prefix, _)| prefix);
                self.registers.insert((scope, name.to_owned()), kind.to_owned());
            }
            return Ok(());
        }
        if words.starts_with(".pragma") {
            return Ok(());
        }
        if words.starts_with('.') {
            self.variables.push(variable(words)?);
            return Ok(());
        }
        let (guard, words) = match words.strip_prefix('@') {
            Some(guarded) => {
                let (guard, words) = guarded.split_once(char::is_whitespace).ok_or("a guard without an instruction")?;
                let name = guard.trim_start_matches('!');
                (Some((name.to_owned(), name.len() < guard.len())), words.trim_start())
            }
            None => (None, words),
        };
        let (opcode, operands) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        let operands = split(operands).into_iter().map(operand).collect::<Result<_, _>>()?;
        self.statements.push(Statement { guard, opcode: opcode.to_owned(), operands, line, scope });
        Ok(())
    }

    /// Resolves a name in a scope or the enclosing ones.
    pub fn find<'b, T>(
        &self,
        of: &'b HashMap<(usize, String), T>,
        mut scope: usize,
        name: &str,
    ) -> Option<(usize, &'b T)> {
        loop {
            if let Some(found) = of.get(&(scope, name.to_owned())) {
                return Some((scope, found));
            }
            if scope == 0 {
                return None;
            }
            scope = self.parents[scope];
        }
    }
}
