//! Warp, memory and control operations.

use super::{Translator, window};
use crate::lanes::Elementwise;
use crate::program::{Access, Kind, Logic, Op, Reduce, Shuffle, Space, Vote};
use crate::registers::Argument;
use crate::text::Operand;

impl Translator<'_> {
    pub(super) fn other(&mut self, opcode: &str, operands: &[Operand]) -> Result<(), String> {
        let words: Vec<&str> = opcode.split('.').collect();
        match words[0] {
            "bra" => return self.branch(operands),
            "ret" | "exit" => return self.plain(Op::Exit),
            "mov" if words[1] != "pred" => return self.special_move(operands),
            "cvta" => return self.convert_address(&words, operands),
            "ld" if words.contains(&"param") => return self.parameter(&words, operands),
            "ld" | "st" => return self.access(&words, operands),
            "atom" | "red" => return self.atomic(&words, operands),
            "selp" => return self.select(&words, operands),
            // Kernels and copies run one after another here.
            "griddepcontrol" | "fence" | "membar" | "prefetch" => return self.plain(Op::Nothing),
            _ => {}
        }
        if words.last() == Some(&"pred") && words[0] != "vote" {
            return self.logic(words[0], operands);
        }
        match (words[0], words.get(1).copied().unwrap_or_default()) {
            ("bar", "warp") => self.plain(Op::WarpBarrier),
            ("barrier", "cluster") if words[2] == "arrive" => self.plain(Op::ClusterArrive),
            ("barrier", "cluster") => self.plain(Op::ClusterWait),
            ("bar" | "barrier", "sync") => {
                let mut rows = self.rows(operands)?;
                rows.resize(2, Argument::None);
                self.push(Op::Barrier, 0, rows).map(drop)
            }
            ("cp", "async") => self.copy(&words, operands),
            ("mbarrier", _) => self.signal(&words, operands),
            ("mapa", _) => {
                let rows = self.rows(operands)?;
                self.push(Op::MapAddress, 1, rows).map(drop)
            }
            ("shfl" | "vote" | "redux", "sync") => self.exchange(&words, operands),
            ("mma" | "wgmma" | "ldmatrix" | "movmatrix", _) => self.matrix(&words, operands),
            _ => Err("an unknown instruction".to_owned()),
        }
    }

    fn plain(&mut self, op: Op) -> Result<(), String> {
        self.push(op, 0, Vec::new()).map(drop)
    }

    fn rows(&mut self, operands: &[Operand]) -> Result<Vec<Argument>, String> {
        operands.iter().map(|operand| self.row(operand, false)).collect()
    }

    fn branch(&mut self, operands: &[Operand]) -> Result<(), String> {
        let [Operand::Name(label)] = operands else { return Err("a branch without a label".to_owned()) };
        let scope = self.current.map_or(0, |statement| statement.scope);
        let found = self.body.find(&self.body.labels, scope, label);
        let (_, at) = found.ok_or_else(|| format!("no label `{label}`"))?;
        self.push(Op::Branch, 0, Vec::new())?.offset = *at as i64;
        Ok(())
    }

    fn convert_address(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        let is_to = words[1] == "to";
        let window = window(words[1 + usize::from(is_to)]).ok_or("an unknown space")?;
        let [to, from] = operands else { return Err("an unknown form".to_owned()) };
        let window = Argument::Constant { bits: window, is_wide: true };
        let arguments = vec![self.row(to, true)?, self.row(from, true)?, window];
        let op = if is_to { Elementwise::Sub64 } else { Elementwise::Add64 };
        self.push(Op::Lanes(op), 1, arguments).map(drop)
    }

    fn parameter(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        let (bytes, _) = number_type(words)?;
        let [to, Operand::Place { base, offset, .. }] = operands else { return Err("an unknown form".to_owned()) };
        let Operand::Name(name) = &**base else { return Err("an unknown form".to_owned()) };
        let at = *self.parameters.get(name).ok_or_else(|| format!("no parameter `{name}`"))? as i64 + offset;
        for (number, to) in each(to).iter().enumerate() {
            let to = self.name_or_number(to, bytes == 8)?;
            let is_wide = matches!(to, Argument::Register { is_wide: true, .. });
            let draft = self.push(Op::Parameter { bytes, is_wide }, 1, vec![to])?;
            draft.offset = at + number as i64 * i64::from(bytes);
        }
        Ok(())
    }

    fn access(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        let is_load = words[0] == "ld";
        let (bytes, is_signed) = number_type(words)?;
        let [first, second] = operands else { return Err("an unknown form".to_owned()) };
        let (place, values) = if is_load { (second, first) } else { (first, second) };
        let values = each(values);
        let (address, offset) = self.address(place)?;
        let access = Access { space: space(words), bytes, count: values.len() as u8, is_signed };
        let mut rows = Vec::with_capacity(values.len() + 1);
        // A register may be wider than what is in memory.
        let mut wider = Vec::new();
        for value in values {
            let row = self.name_or_number(value, bytes == 8)?;
            let is_wider = bytes < 8 && matches!(row, Argument::Register { is_wide: true, .. });
            rows.push(if is_wider { self.scratch(false) } else { row });
            wider.extend(is_wider.then(|| (row, rows[rows.len() - 1])));
        }
        if is_load {
            rows.push(address);
            self.push(Op::Load(access), values.len(), rows)?.offset = offset;
            let op = if is_signed { Elementwise::S64FromS32 } else { Elementwise::U64FromU32 };
            return wider
                .into_iter()
                .try_for_each(|(wide, narrow)| self.push(Op::Lanes(op), 1, vec![wide, narrow]).map(drop));
        }
        for (wide, narrow) in wider {
            self.push(Op::Lanes(Elementwise::U32FromU64), 1, vec![narrow, wide])?;
        }
        rows.insert(0, address);
        self.push(Op::Store(access), 0, rows)?.offset = offset;
        Ok(())
    }

    /// A register of any width, or a number.
    fn name_or_number(&mut self, operand: &Operand, is_wide: bool) -> Result<Argument, String> {
        match operand {
            Operand::Name(name) if name != "_" => match self.name(name)? {
                found @ Argument::Register { .. } => Ok(found),
                _ => self.row(operand, is_wide),
            },
            _ => self.row(operand, is_wide),
        }
    }

    fn atomic(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        let (bytes, _) = number_type(words)?;
        let kind = kind(words);
        let reduce = reduce(words).ok_or("an unknown atomic operation")?;
        let (to, rest) = if words[0] == "atom" { (operands.first(), &operands[1..]) } else { (None, operands) };
        let is_wide = bytes == 8;
        let mut arguments = vec![to.map_or(Ok(Argument::None), |to| self.row(to, is_wide))?];
        let (address, offset) = self.address(&rest[0])?;
        arguments.push(address);
        for value in &rest[1..] {
            arguments.push(self.row(value, is_wide)?);
        }
        self.push(Op::Atomic { space: space(words), reduce, kind, is_wide }, 1, arguments)?.offset = offset;
        Ok(())
    }

    fn select(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        let is_wide = number_type(words)?.0 == 8;
        let [to, a, b, predicate] = operands else { return Err("an unknown form".to_owned()) };
        let rows = [to, a, b].into_iter().map(|operand| self.row(operand, is_wide));
        let mut arguments = rows.collect::<Result<Vec<_>, _>>()?;
        arguments.push(self.predicate(predicate)?);
        self.push(Op::Select { is_wide }, 1, arguments).map(drop)
    }

    fn logic(&mut self, word: &str, operands: &[Operand]) -> Result<(), String> {
        let logic = match word {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => Logic::Not,
            "mov" => Logic::Move,
            _ => return Err("an unknown instruction".to_owned()),
        };
        let mut all = operands.iter().map(|operand| self.predicate(operand)).collect::<Result<Vec<_>, _>>()?;
        all.resize(3, Argument::Predicate(crate::program::NEVER));
        self.push(Op::Logic(logic), 1, all).map(drop)
    }

    /// `cp.async`: copies, their groups, and TMA loads.
    fn copy(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        match words[2] {
            "commit_group" | "wait_group" | "wait_all" => self.plain(Op::Nothing),
            "ca" | "cg" => {
                let mut arguments = vec![self.plain_address(&operands[0])?, self.plain_address(&operands[1])?];
                arguments.push(operands.get(3).map_or(Ok(Argument::None), |bytes| self.row(bytes, false))?);
                let Operand::Number(bytes) = operands[2] else { return Err("an unknown size".to_owned()) };
                self.push(Op::CopyAsync { bytes: bytes as u8 }, 0, arguments).map(drop)
            }
            "bulk" if words[3..5] == ["tensor", "3d"] && words.contains(&"global") => {
                let Operand::Place { coordinates, .. } = &operands[1] else { return Err("an unknown form".to_owned()) };
                let mut arguments = vec![self.plain_address(&operands[0])?, self.plain_address(&operands[1])?];
                arguments.extend(self.rows(coordinates)?);
                arguments.push(self.plain_address(&operands[2])?);
                self.push(Op::CopyTile, 0, arguments).map(drop)
            }
            _ => Err("an unknown copy".to_owned()),
        }
    }

    fn signal(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        match words[1] {
            "init" => {
                let arguments = vec![self.plain_address(&operands[0])?, self.row(&operands[1], false)?];
                self.push(Op::SignalInit, 0, arguments).map(drop)
            }
            "arrive" if operands[0] == Operand::Name("_".to_owned()) => {
                let bytes = operands.get(2).map_or(Ok(Argument::None), |bytes| self.row(bytes, false))?;
                let arguments = vec![self.plain_address(&operands[1])?, bytes];
                self.push(Op::SignalArrive, 0, arguments).map(drop)
            }
            "try_wait" | "test_wait" if words[2] == "parity" => {
                let place = self.plain_address(&operands[1])?;
                let arguments = vec![self.predicate(&operands[0])?, place, self.row(&operands[2], false)?];
                self.push(Op::SignalTest, 1, arguments).map(drop)
            }
            _ => Err("an unknown form of a barrier in memory".to_owned()),
        }
    }

    fn exchange(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        match words[0] {
            "shfl" => {
                let shuffle = match words[2] {
                    "up" => Shuffle::Up,
                    "down" => Shuffle::Down,
                    "bfly" => Shuffle::Butterfly,
                    _ => Shuffle::Index,
                };
                let (to, predicate) = match &operands[0] {
                    Operand::Name(name) if name.contains('|') => {
                        let (to, predicate) = name.split_once('|').unwrap_or_default();
                        (self.name(to)?, self.name(predicate)?)
                    }
                    to => (self.row(to, false)?, Argument::None),
                };
                let arguments = [vec![to, predicate], self.rows(&operands[1..])?].concat();
                self.push(Op::Shuffle(shuffle), 1, arguments).map(drop)
            }
            "vote" => {
                let (vote, to) = match words[2] {
                    "ballot" => (Vote::Ballot, self.row(&operands[0], false)?),
                    "any" => (Vote::Any, self.predicate(&operands[0])?),
                    "all" => (Vote::All, self.predicate(&operands[0])?),
                    _ => return Err("an unknown vote".to_owned()),
                };
                let arguments = vec![to, self.predicate(&operands[1])?, self.row(&operands[2], false)?];
                self.push(Op::Vote(vote), 1, arguments).map(drop)
            }
            _ => {
                let reduce = reduce(words).ok_or("an unknown reduction")?;
                let arguments = self.rows(operands)?;
                self.push(Op::Redux(reduce, kind(words)), 1, arguments).map(drop)
            }
        }
    }

    fn matrix(&mut self, words: &[&str], operands: &[Operand]) -> Result<(), String> {
        let is_bf16 = words.contains(&"bf16");
        let is_half = is_bf16 || words.contains(&"f16");
        match words[0] {
            "mma" if is_half && words.contains(&"m16n8k16") => {
                let all: Vec<Operand> = operands.iter().flat_map(each).cloned().collect();
                let arguments = self.rows(&all)?;
                self.push(Op::Multiply { is_bf16 }, 4, arguments).map(drop)
            }
            "wgmma" if is_half && words.contains(&"m64n64k16") => {
                let mut arguments = self.rows(each(&operands[0]))?;
                let sums = arguments.len();
                arguments.extend(self.rows(each(&operands[1]))?);
                arguments.extend([self.row(&operands[2], true)?, self.predicate(&operands[3])?]);
                // The sums are read too.
                arguments.extend_from_within(..sums);
                let is_transposed = operands.last() == Some(&Operand::Number(1));
                self.push(Op::MultiplyGroup { is_bf16, is_transposed }, sums, arguments).map(drop)
            }
            "wgmma" if words[1] != "mma_async" => self.plain(Op::Nothing),
            "ldmatrix" if words.contains(&"m8n8") => {
                let mut arguments = self.rows(each(&operands[0]))?;
                let results = arguments.len();
                let (address, offset) = self.address(&operands[1])?;
                arguments.push(address);
                let op = Op::LoadMatrices { is_transposed: words.contains(&"trans") };
                self.push(op, results, arguments)?.offset = offset;
                Ok(())
            }
            "movmatrix" => {
                let arguments = self.rows(operands)?;
                self.push(Op::TransposeMatrix, 1, arguments).map(drop)
            }
            _ => Err("an unknown instruction".to_owned()),
        }
    }
}

/// The members of a vector, or the one operand.
fn each(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Many(all) => all,
        one => std::slice::from_ref(one),
    }
}

/// The size of the type suffix of an opcode, and whether it is signed.
fn number_type(words: &[&str]) -> Result<(u8, bool), String> {
    let last = words.last().copied().unwrap_or_default();
    let bits: u8 = last.get(1..).and_then(|bits| bits.parse().ok()).ok_or("an unknown type")?;
    Ok((bits / 8, last.starts_with('s')))
}

fn kind(words: &[&str]) -> Kind {
    match words.last().and_then(|word| word.chars().next()) {
        Some('s') => Kind::Signed,
        Some('f') => Kind::Float,
        _ => Kind::Unsigned,
    }
}

fn space(words: &[&str]) -> Space {
    let has = |wanted: &str| words.iter().any(|word| word.split("::").next() == Some(wanted));
    match () {
        () if has("global") => Space::Global,
        () if has("shared") => Space::Shared,
        () if has("local") => Space::Local,
        () => Space::Generic,
    }
}

fn reduce(words: &[&str]) -> Option<Reduce> {
    words.iter().find_map(|word| {
        Some(match *word {
            "add" => Reduce::Add,
            "min" => Reduce::Min,
            "max" => Reduce::Max,
            "and" => Reduce::And,
            "or" => Reduce::Or,
            "xor" => Reduce::Xor,
            "exch" => Reduce::Exchange,
            "cas" => Reduce::CompareAndSwap,
            _ => return None,
        })
    })
}
