//! Register allocation: registers that are not live at the same time share a row, so that a warp fits in the cache.

use std::collections::{BTreeMap, HashMap};

use crate::program::{Instruction, NONE, Op, Program};
use crate::rows::{CONSTANTS, Row};

/// An operand before it has a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Argument {
    Register { id: u32, is_wide: bool },
    Constant { bits: u64, is_wide: bool },
    Predicate(u32),
    None,
}

/// An instruction before its operands have rows.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub op: Op,
    pub guard: u32,
    pub is_negated: bool,
    pub arguments: Vec<Argument>,
    /// The number of results among them.
    pub results: usize,
    pub offset: i64,
    pub line: u32,
}

/// Sets of registers, 64 to a word.
type Set = Vec<u64>;

fn insert(set: &mut Set, id: u32) {
    set[id as usize / 64] |= 1 << (id % 64);
}

fn registers(arguments: &[Argument]) -> impl Iterator<Item = u32> + '_ {
    arguments.iter().filter_map(|argument| match argument {
        Argument::Register { id, .. } => Some(*id),
        _ => None,
    })
}

impl Draft {
    fn uses(&self) -> impl Iterator<Item = u32> + '_ {
        // A guarded instruction keeps the old values in other lanes.
        let from = if self.guard == crate::program::ALWAYS { self.results } else { 0 };
        registers(&self.arguments[from..])
    }
    fn defines(&self) -> impl Iterator<Item = u32> + '_ {
        registers(&self.arguments[..self.results])
    }
    fn is_end(&self) -> bool {
        matches!(self.op, Op::Branch | Op::Exit)
    }
}

struct Piece {
    from: usize,
    end: usize,
    next: Vec<usize>,
    live_in: Set,
}

/// The basic blocks.
fn pieces(code: &[Draft], words: usize) -> Vec<Piece> {
    let mut starts: Vec<usize> = vec![0];
    for (at, draft) in code.iter().enumerate().filter(|(_, draft)| draft.is_end()) {
        starts.push(at + 1);
        if draft.op == Op::Branch {
            starts.push(draft.offset as usize);
        }
    }
    starts.retain(|start| *start < code.len());
    starts.sort_unstable();
    starts.dedup();
    let by_start: HashMap<usize, usize> = starts.iter().enumerate().map(|(piece, start)| (*start, piece)).collect();
    let ends = starts.iter().skip(1).copied().chain([code.len()]);
    let piece = |(from, end): (usize, usize)| {
        let last = &code[end - 1];
        let is_left = last.is_end() && last.guard == crate::program::ALWAYS;
        let target = (last.op == Op::Branch).then_some(last.offset as usize);
        let next = target.into_iter().chain((!is_left).then_some(end)).filter_map(|at| by_start.get(&at).copied());
        Piece { from, end, next: next.collect(), live_in: vec![0; words] }
    };
    starts.iter().copied().zip(ends).map(piece).collect()
}

/// The live range of each register: instruction i reads at time 2 i and writes at 2 i + 1.
fn spans(code: &[Draft], count: usize) -> Vec<(usize, usize)> {
    let words = count.div_ceil(64);
    let mut pieces = pieces(code, words);
    let mut spans = vec![(usize::MAX, 0); count];
    let mut live_out = vec![vec![0; words]; pieces.len()];
    let mut is_changed = true;
    while is_changed {
        is_changed = false;
        for number in (0..pieces.len()).rev() {
            let mut live = vec![0; words];
            for next in &pieces[number].next {
                live.iter_mut().zip(&pieces[*next].live_in).for_each(|(all, more)| *all |= more);
            }
            live_out[number].clone_from(&live);
            for draft in code[pieces[number].from..pieces[number].end].iter().rev() {
                draft.defines().for_each(|id| live[id as usize / 64] &= !(1 << (id % 64)));
                draft.uses().for_each(|id| insert(&mut live, id));
            }
            is_changed |= live != pieces[number].live_in;
            pieces[number].live_in = live;
        }
    }
    let mut extend = |id: usize, at: usize| spans[id] = (spans[id].0.min(at), spans[id].1.max(at));
    let members = |set: &Set| -> Vec<usize> { (0..count).filter(|id| set[id / 64] >> (id % 64) & 1 != 0).collect() };
    for (piece, live_out) in pieces.iter().zip(&live_out) {
        members(&piece.live_in).into_iter().for_each(|id| extend(id, 2 * piece.from));
        members(live_out).into_iter().for_each(|id| extend(id, 2 * piece.end));
        for (at, draft) in code.iter().enumerate().take(piece.end).skip(piece.from) {
            draft.uses().for_each(|id| extend(id as usize, 2 * at));
            draft.defines().for_each(|id| extend(id as usize, 2 * at + 1));
            // Several results are written one after another, and none of them may be in the row of an operand.
            if !matches!(draft.op, Op::Lanes(_)) {
                draft.defines().for_each(|id| extend(id as usize, 2 * at));
            }
        }
    }
    spans
}

/// Free rows of one width.
#[derive(Default)]
struct Pool {
    free: Vec<u32>,
}

/// The row of each register, and the number of rows.
fn rows(code: &[Draft], widths: &[bool]) -> (Vec<u32>, usize) {
    let spans = spans(code, widths.len());
    let mut order: Vec<usize> = (0..widths.len()).filter(|id| spans[*id].0 != usize::MAX).collect();
    order.sort_unstable_by_key(|id| spans[*id]);
    let mut ending: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let (mut pools, mut rows, mut count) = ([Pool::default(), Pool::default()], vec![NONE; widths.len()], 0);
    for id in order {
        let (from, end) = spans[id];
        while let Some(first) = ending.first_entry().filter(|first| *first.key() < from) {
            for done in first.remove() {
                pools[usize::from(widths[done])].free.push(rows[done]);
            }
        }
        rows[id] = pools[usize::from(widths[id])].free.pop().unwrap_or_else(|| {
            let row = count;
            count += if widths[id] { 2 } else { 1 };
            row
        });
        ending.entry(end).or_default().push(id);
    }
    (rows, count as usize)
}

/// Finishes a program: allocates rows for registers and constants.
pub(crate) fn assign(program: &mut Program, code: &[Draft], widths: &[bool]) {
    let (rows, count) = rows(code, widths);
    program.rows = count;
    let mut constants: HashMap<(u64, bool), u32> = HashMap::new();
    for draft in code {
        let first = program.operands.len() as u32;
        for argument in &draft.arguments {
            let operand = match *argument {
                Argument::Register { id, .. } => rows[id as usize],
                Argument::Predicate(number) => number,
                Argument::None => NONE,
                Argument::Constant { bits, is_wide } => *constants.entry((bits, is_wide)).or_insert_with(|| {
                    let number = CONSTANTS + program.constants.len() as u32;
                    program.constants.extend_from_slice(&Row::constant(bits, is_wide)[..1 + usize::from(is_wide)]);
                    number
                }),
            };
            program.operands.push(operand);
        }
        let Draft { op, guard, is_negated, offset, line, .. } = *draft;
        program.code.push(Instruction {
            op,
            guard,
            is_negated,
            first,
            count: draft.arguments.len() as u16,
            offset,
            line,
        });
    }
}
