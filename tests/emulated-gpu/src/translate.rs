//! Translates a kernel: names to registers, labels to offsets, and opcodes to operations.

use std::collections::HashMap;

use crate::lanes::{Compare, Elementwise};
use crate::program::{ALWAYS, LOCAL_WINDOW, NEVER, Op, Parameter, Program, SHARED_BEGINS, SHARED_WINDOW, Special};
use crate::registers::{self, Argument, Draft};
use crate::text::{Body, Entry, Operand, Statement, Variable};

mod opcodes;

/// The addresses of the module's variables.
pub(crate) type Addresses = HashMap<String, u64>;

/// Translates the text of a kernel.
pub(crate) fn translate(entry: &Entry, shared: &[Variable], globals: &Addresses) -> Result<Program, String> {
    let body = crate::text::body(&entry.body)?;
    let mut program = Program { name: entry.name.clone(), cluster: entry.cluster, ..Program::default() };
    let mut names: HashMap<String, Argument> = HashMap::new();
    let mut address = |name: &str, bits: u64| {
        names.insert(name.to_owned(), Argument::Constant { bits, is_wide: true });
    };
    globals.iter().for_each(|(name, at)| address(name, *at));
    let in_body = |space: &'static str| body.variables.iter().filter(move |variable| variable.space == space);
    let mut end = SHARED_BEGINS;
    let all_shared = || shared.iter().chain(in_body(".shared"));
    for variable in all_shared().filter(|variable| variable.bytes > 0) {
        end = end.next_multiple_of(variable.align as u64);
        address(&variable.name, end);
        end += variable.bytes as u64;
    }
    // Dynamic shared memory follows static shared memory, as on a device.
    let align = all_shared().map(|variable| variable.align as u64).max().unwrap_or(1).max(16);
    program.shared_end = end.next_multiple_of(align);
    all_shared()
        .filter(|variable| variable.bytes == 0)
        .for_each(|variable| address(&variable.name, program.shared_end));
    for variable in in_body(".local") {
        let at = program.local_bytes.next_multiple_of(variable.align);
        address(&variable.name, at as u64);
        program.local_bytes = at + variable.bytes;
    }
    let mut parameters = HashMap::new();
    for parameter in &entry.parameters {
        let offset = program.parameter_bytes.next_multiple_of(parameter.align.max(1));
        parameters.insert(parameter.name.clone(), offset as u64);
        program.parameters.push(Parameter { offset, bytes: parameter.bytes });
        program.parameter_bytes = offset + parameter.bytes;
    }
    let mut translator = Translator {
        body: &body,
        names,
        parameters,
        registers: HashMap::new(),
        widths: Vec::new(),
        predicates: 2,
        code: Vec::new(),
        current: None,
    };
    translator.all()?;
    let Translator { code, widths, predicates, .. } = translator;
    program.predicates = predicates as usize;
    registers::assign(&mut program, &code, &widths);
    Ok(program)
}

struct Translator<'a> {
    body: &'a Body,
    names: HashMap<String, Argument>,
    parameters: HashMap<String, u64>,
    /// By scope and name.
    registers: HashMap<(usize, String), Argument>,
    /// Whether each register has 64 bits.
    widths: Vec<bool>,
    predicates: u32,
    code: Vec<Draft>,
    current: Option<&'a Statement>,
}

impl<'a> Translator<'a> {
    fn all(&mut self) -> Result<(), String> {
        let body = self.body;
        let mut starts = Vec::with_capacity(body.statements.len() + 1);
        for statement in &body.statements {
            starts.push(self.code.len());
            self.current = Some(statement);
            self.statement(statement)
                .map_err(|why| format!("line {}: `{}`: {why}", statement.line, statement.opcode))?;
        }
        starts.push(self.code.len());
        self.current = None;
        if !self.code.last().is_some_and(|last| last.op == Op::Exit && last.guard == ALWAYS) {
            self.push(Op::Exit, 0, Vec::new())?;
        }
        for draft in self.code.iter_mut().filter(|draft| draft.op == Op::Branch) {
            draft.offset = starts[draft.offset as usize] as i64;
        }
        Ok(())
    }

    fn push(&mut self, op: Op, results: usize, arguments: Vec<Argument>) -> Result<&mut Draft, String> {
        let guard = self.current.and_then(|statement| statement.guard.as_ref());
        let (guard, is_negated) = match guard {
            Some((name, is_negated)) => match self.name(name)? {
                Argument::Predicate(number) => (number, *is_negated),
                _ => return Err("the guard is no predicate".to_owned()),
            },
            None => (ALWAYS, false),
        };
        let line = self.current.map_or(0, |statement| statement.line);
        self.code.push(Draft { op, guard, is_negated, arguments, results, offset: 0, line });
        self.code.last_mut().ok_or_else(String::new)
    }

    /// A register, or the address of a variable.
    fn name(&mut self, name: &str) -> Result<Argument, String> {
        let scope = self.current.map_or(0, |statement| statement.scope);
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let body = self.body;
        let declared = body.find(&body.registers, scope, name);
        let declared = declared.or_else(|| name.starts_with('%').then(|| body.find(&body.registers, scope, prefix))?);
        let Some((scope, kind)) = declared else {
            return self.names.get(name).copied().ok_or_else(|| format!("unknown name `{name}`"));
        };
        if let Some(known) = self.registers.get(&(scope, name.to_owned())) {
            return Ok(*known);
        }
        let new = if kind == ".pred" {
            self.predicates += 1;
            Argument::Predicate(self.predicates - 1)
        } else {
            let is_wide = kind.ends_with("64");
            self.widths.push(is_wide);
            Argument::Register { id: self.widths.len() as u32 - 1, is_wide }
        };
        self.registers.insert((scope, name.to_owned()), new);
        Ok(new)
    }

    fn scratch(&mut self, is_wide: bool) -> Argument {
        self.widths.push(is_wide);
        Argument::Register { id: self.widths.len() as u32 - 1, is_wide }
    }

    /// An operand of this width.
    fn row(&mut self, operand: &Operand, is_wide: bool) -> Result<Argument, String> {
        match operand {
            Operand::Number(bits) => Ok(Argument::Constant { bits: *bits, is_wide }),
            Operand::Name(name) if name == "_" => Ok(self.scratch(is_wide)),
            Operand::Name(name) => match self.name(name)? {
                Argument::Constant { bits, .. } => Ok(Argument::Constant { bits, is_wide }),
                found @ Argument::Register { is_wide: width, .. } if width == is_wide => Ok(found),
                found => Err(format!("`{name}` is {found:?}, {} bits are needed", if is_wide { 64 } else { 32 })),
            },
            other => Err(format!("an operand like {other:?}")),
        }
    }

    fn predicate(&mut self, operand: &Operand) -> Result<Argument, String> {
        match operand {
            Operand::Number(0) => Ok(Argument::Predicate(NEVER)),
            Operand::Number(_) => Ok(Argument::Predicate(ALWAYS)),
            Operand::Name(name) => match self.name(name)? {
                found @ Argument::Predicate(_) => Ok(found),
                _ => Err(format!("`{name}` is no predicate")),
            },
            other => Err(format!("a predicate like {other:?}")),
        }
    }

    /// The address of a memory operand and its offset.
    fn place(&mut self, operand: &Operand) -> Result<(Argument, i64), String> {
        let Operand::Place { base, offset, .. } = operand else { return Err(format!("an address like {operand:?}")) };
        match &**base {
            Operand::Number(bits) => Ok((Argument::Constant { bits: *bits, is_wide: true }, *offset)),
            Operand::Name(name) => Ok((self.name(name)?, *offset)),
            other => Err(format!("an address like {other:?}")),
        }
    }

    /// A memory operand as an address of 64 bits.
    fn address(&mut self, operand: &Operand) -> Result<(Argument, i64), String> {
        let (base, offset) = self.place(operand)?;
        if let Argument::Register { is_wide: false, .. } = base {
            let widened = self.scratch(true);
            self.push(Op::Lanes(Elementwise::U64FromU32), 1, vec![widened, base])?;
            return Ok((widened, offset));
        }
        Ok((base, offset))
    }

    /// A memory operand without an offset.
    fn plain_address(&mut self, operand: &Operand) -> Result<Argument, String> {
        let (base, offset) = self.address(operand)?;
        if offset == 0 { Ok(base) } else { Err("an offset is not supported here".to_owned()) }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        let (opcode, operands) = (statement.opcode.as_str(), &statement.operands[..]);
        if let Some(op) = Elementwise::named(opcode).filter(|_| !self.is_special_move(operands)) {
            return self.lanes(op, operands);
        }
        if let Some(op) = Compare::named(opcode) {
            let [to, a, b] = operands else { return Err("an unknown form of a comparison".to_owned()) };
            let arguments = vec![self.predicate(to)?, self.row(a, op.is_wide())?, self.row(b, op.is_wide())?];
            return self.push(Op::Compare(op), 1, arguments).map(drop);
        }
        self.other(opcode, operands)
    }

    fn lanes(&mut self, op: Elementwise, operands: &[Operand]) -> Result<(), String> {
        if op.widths().len() != operands.len() {
            return Err("another number of operands".to_owned());
        }
        let rows = operands.iter().zip(op.widths()).map(|(operand, is_wide)| self.row(operand, *is_wide));
        let rows = rows.collect::<Result<_, _>>()?;
        self.push(Op::Lanes(op), 1, rows).map(drop)
    }

    fn is_special_move(&self, operands: &[Operand]) -> bool {
        operands.iter().any(|operand| match operand {
            Operand::Many(_) => true,
            Operand::Name(name) => special(name).is_some() || self.parameters.contains_key(name),
            _ => false,
        })
    }

    /// `mov` of special registers, addresses of parameters and halves.
    fn special_move(&mut self, operands: &[Operand]) -> Result<(), String> {
        let [to, from] = operands else { return Err("an unknown form of a move".to_owned()) };
        match (to, from) {
            (Operand::Many(halves), from) if halves.len() == 2 => {
                let is_wide = self.is_wide(from)?;
                let from = self.row(from, is_wide)?;
                let ops = if is_wide {
                    [Elementwise::Low32, Elementwise::High32]
                } else {
                    [Elementwise::Low16, Elementwise::High16]
                };
                for (half, op) in halves.iter().zip(ops) {
                    let half = self.row(half, false)?;
                    self.push(Op::Lanes(op), 1, vec![half, from])?;
                }
                Ok(())
            }
            (to, Operand::Many(halves)) if halves.len() == 2 => {
                let is_wide = self.is_wide(to)?;
                let arguments =
                    vec![self.row(to, is_wide)?, self.row(&halves[0], false)?, self.row(&halves[1], false)?];
                let op = if is_wide { Elementwise::Join64 } else { Elementwise::Join32 };
                self.push(Op::Lanes(op), 1, arguments).map(drop)
            }
            (to, Operand::Name(name)) => {
                if let Some(offset) = self.parameters.get(name).copied() {
                    let to = self.row(to, true)?;
                    self.push(Op::ParameterAddress, 1, vec![to])?.offset = offset as i64;
                    return Ok(());
                }
                let special = special(name).ok_or("an unknown form of a move")?;
                let to = self.row(to, special == Special::Timer)?;
                self.push(Op::Special(special), 1, vec![to]).map(drop)
            }
            _ => Err("an unknown form of a move".to_owned()),
        }
    }

    fn is_wide(&mut self, operand: &Operand) -> Result<bool, String> {
        match operand {
            Operand::Name(name) => Ok(matches!(self.name(name)?, Argument::Register { is_wide: true, .. })),
            _ => Err(format!("a half of {operand:?}")),
        }
    }
}

/// A special register by its name.
fn special(name: &str) -> Option<Special> {
    let side = |name: &str| ["x", "y", "z"].iter().position(|side| *side == name).map(|side| side as u8);
    let (base, rest) = name.strip_prefix('%')?.split_once('.').unwrap_or((name.strip_prefix('%')?, ""));
    Some(match base {
        "tid" => Special::Thread(side(rest)?),
        "ntid" => Special::Threads(side(rest)?),
        "ctaid" => Special::Block(side(rest)?),
        "nctaid" => Special::Blocks(side(rest)?),
        "laneid" => Special::Lane,
        "warpid" => Special::Warp,
        "cluster_ctarank" => Special::Rank,
        "globaltimer" | "clock64" => Special::Timer,
        _ => return None,
    })
}

/// The window of generic addresses of a space.
fn window(space: &str) -> Option<u64> {
    match space {
        "shared" => Some(SHARED_WINDOW),
        "local" => Some(LOCAL_WINDOW),
        _ => None,
    }
}
