//! The pickle of a state dict: the opcodes that `torch.save` writes, and no others.

use std::collections::HashMap;

use safetensors::tensor::Dtype as StoredType;

use super::Fault;

/// A tensor of a state dict, stored row-major.
#[derive(Debug)]
pub struct Found<'a> {
    pub name: &'a str,
    pub storage: Storage<'a>,
    /// Its first element in the storage.
    pub offset: usize,
    pub shape: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct Storage<'a> {
    pub key: &'a str,
    pub stored_as: StoredType,
    pub count: usize,
}

const STORAGES: [(&str, StoredType); 10] = [
    ("FloatStorage", StoredType::F32),
    ("BFloat16Storage", StoredType::BF16),
    ("HalfStorage", StoredType::F16),
    ("DoubleStorage", StoredType::F64),
    ("LongStorage", StoredType::I64),
    ("IntStorage", StoredType::I32),
    ("ShortStorage", StoredType::I16),
    ("CharStorage", StoredType::I8),
    ("ByteStorage", StoredType::U8),
    ("BoolStorage", StoredType::BOOL),
];

/// Tuples and dicts are indices into [`Machine::lists`], so values are small and nesting needs no recursion.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    None,
    Int(i64),
    Str(&'a str),
    Tuple(usize),
    /// Keys and values in turn.
    Dict(usize),
    /// A module and a name in it, which is never looked up.
    Global(&'a str, &'a str),
    Storage(Storage<'a>),
    /// A storage, an offset and the tuple of the shape.
    Tensor(Storage<'a>, usize, usize),
    /// The beginning of a tuple or of the items of a dict.
    Mark,
}

impl Value<'_> {
    fn kind(self) -> String {
        let kind = match self {
            Self::None => "nothing",
            Self::Int(_) => "a number",
            Self::Str(_) => "a string",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Global(module, name) => return format!("`{module}.{name}`"),
            Self::Storage(_) => "a storage",
            Self::Tensor(..) => "a tensor",
            Self::Mark => "a mark",
        };
        kind.to_owned()
    }

    fn count(self) -> Option<usize> {
        if let Self::Int(number) = self { usize::try_from(number).ok() } else { None }
    }
}

pub fn state_dict(pickle: &[u8]) -> Result<Vec<Found<'_>>, Fault> {
    let mut machine = Machine { pickle, at: 0, stack: Vec::new(), memo: HashMap::new(), lists: Vec::new() };
    let whole = loop {
        if let Some(whole) = machine.step()? {
            break whole;
        }
    };
    let Value::Dict(items) = whole else {
        return Err(not_read(format!("expected a state dict, found {}", whole.kind())));
    };
    let (pairs, _) = machine.lists[items].as_chunks();
    pairs.iter().map(|[name, tensor]| machine.found(*name, *tensor)).collect()
}

fn not_read(reason: impl Into<String>) -> Fault {
    Fault::NotRead(reason.into())
}

struct Machine<'a> {
    pickle: &'a [u8],
    at: usize,
    stack: Vec<Value<'a>>,
    memo: HashMap<u32, Value<'a>>,
    lists: Vec<Vec<Value<'a>>>,
}

impl<'a> Machine<'a> {
    /// Runs one opcode. Returns the value of the pickle at its end.
    fn step(&mut self) -> Result<Option<Value<'a>>, Fault> {
        let [opcode] = self.take()?;
        let value = match opcode {
            0x80 => match self.take()? {
                [2] => return Ok(None),
                [other] => return Err(not_read(format!("pickle protocol {other} is not supported, expected 2"))),
            },
            b'(' => Value::Mark,
            b')' => self.tuple(Vec::new()),
            b'}' => self.dict(),
            b'N' | 0x88 | 0x89 => Value::None,
            b'K' => Value::Int(i64::from(u8::from_le_bytes(self.take()?))),
            b'M' => Value::Int(i64::from(u16::from_le_bytes(self.take()?))),
            b'J' => Value::Int(i64::from(i32::from_le_bytes(self.take()?))),
            0x8a => Value::Int(self.long()?),
            b'X' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                Value::Str(self.text(length)?)
            }
            b'c' => Value::Global(self.line()?, self.line()?),
            b'q' | b'r' => {
                let index = self.index(opcode == b'q')?;
                let value = *self.stack.last().ok_or_else(|| self.damaged())?;
                self.memo.insert(index, value);
                return Ok(None);
            }
            b'h' | b'j' => {
                let index = self.index(opcode == b'h')?;
                *self.memo.get(&index).ok_or_else(|| self.damaged())?
            }
            b't' => {
                let values = self.since_mark()?;
                self.tuple(values)
            }
            0x85..=0x87 => {
                let values = self.last(usize::from(opcode - 0x84))?;
                self.tuple(values)
            }
            b's' | b'u' => {
                let mut items = if opcode == b's' { self.last(2)? } else { self.since_mark()? };
                match self.stack.last() {
                    Some(Value::Dict(dict)) if items.len().is_multiple_of(2) => self.lists[*dict].append(&mut items),
                    _ => return Err(self.damaged()),
                }
                return Ok(None);
            }
            b'Q' => self.storage()?,
            b'R' => self.call()?,
            // Attributes of a dict, such as the versions of its modules, say nothing about its tensors.
            b'b' => {
                self.pop()?;
                match self.stack.last() {
                    Some(Value::Dict(_)) => return Ok(None),
                    Some(other) => return Err(not_read(format!("the pickle sets attributes of {}", other.kind()))),
                    None => return Err(self.damaged()),
                }
            }
            b'.' => return self.pop().map(Some),
            other => return Err(not_read(format!("pickle opcode {other:#04x} is not supported"))),
        };
        self.stack.push(value);
        Ok(None)
    }

    fn damaged(&self) -> Fault {
        Fault::Damaged(format!("the pickle is damaged at byte {}", self.at))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let bytes = self.pickle.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let bytes = *bytes.ok_or_else(|| self.damaged())?;
        self.at += N;
        Ok(bytes)
    }

    fn text(&mut self, length: usize) -> Result<&'a str, Fault> {
        let bytes = self.pickle.get(self.at..).and_then(|rest| rest.get(..length));
        let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(|| self.damaged())?;
        self.at += length;
        Ok(text)
    }

    fn line(&mut self) -> Result<&'a str, Fault> {
        let length = self.pickle[self.at..].iter().position(|&byte| byte == b'\n').ok_or_else(|| self.damaged())?;
        let line = self.text(length)?;
        self.at += 1;
        Ok(line)
    }

    /// A number of up to eight bytes, little-endian, in two's complement.
    fn long(&mut self) -> Result<i64, Fault> {
        let [length] = self.take()?;
        let mut number: i64 = 0;
        for place in 0..u32::from(length) {
            let [byte] = self.take()?;
            let is_last = place + 1 == u32::from(length);
            let byte = if is_last { i64::from(byte as i8) } else { i64::from(byte) };
            number |= byte.checked_shl(8 * place).ok_or_else(|| self.damaged())?;
        }
        Ok(number)
    }

    fn index(&mut self, is_short: bool) -> Result<u32, Fault> {
        if is_short { Ok(u32::from(u8::from_le_bytes(self.take()?))) } else { Ok(u32::from_le_bytes(self.take()?)) }
    }

    fn pop(&mut self) -> Result<Value<'a>, Fault> {
        self.stack.pop().ok_or_else(|| self.damaged())
    }

    fn last(&mut self, count: usize) -> Result<Vec<Value<'a>>, Fault> {
        let from = self.stack.len().checked_sub(count).ok_or_else(|| self.damaged())?;
        Ok(self.stack.split_off(from))
    }

    fn since_mark(&mut self) -> Result<Vec<Value<'a>>, Fault> {
        let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark)).ok_or_else(|| self.damaged())?;
        let values = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(values)
    }

    fn tuple(&mut self, values: Vec<Value<'a>>) -> Value<'a> {
        self.lists.push(values);
        Value::Tuple(self.lists.len() - 1)
    }

    fn dict(&mut self) -> Value<'a> {
        self.lists.push(Vec::new());
        Value::Dict(self.lists.len() - 1)
    }

    /// A storage: `("storage", type, name in the archive, device, count)`.
    fn storage(&mut self) -> Result<Value<'a>, Fault> {
        let Value::Tuple(items) = self.pop()? else { return Err(self.damaged()) };
        let [Value::Str(word), Value::Global(module, class), Value::Str(key), _, count] = self.lists[items][..] else {
            return Err(not_read("the pickle refers to something other than a storage"));
        };
        let count = count.count().filter(|_| word == "storage").ok_or_else(|| self.damaged())?;
        let known = STORAGES.into_iter().find(|(name, _)| module == "torch" && class == *name);
        let (_, stored_as) = known.ok_or_else(|| not_read(format!("`{module}.{class}` is not supported")))?;
        Ok(Value::Storage(Storage { key, stored_as, count }))
    }

    /// The calls that a state dict needs. None is executed.
    fn call(&mut self) -> Result<Value<'a>, Fault> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Global(module, name)) = (arguments, callee) else {
            return Err(self.damaged());
        };
        match (module, name, self.lists[arguments].as_slice()) {
            ("collections", "OrderedDict", []) => Ok(self.dict()),
            ("torch._utils", "_rebuild_tensor_v2", &[storage, offset, shape, strides, ..]) => {
                self.tensor(storage, offset, shape, strides)
            }
            ("torch._utils", "_rebuild_parameter", &[tensor @ Value::Tensor(..), ..]) => Ok(tensor),
            _ => Err(not_read(format!("the pickle calls `{module}.{name}`; nothing in a pickle is executed"))),
        }
    }

    fn tensor(
        &self,
        storage: Value<'a>,
        offset: Value<'a>,
        shape: Value<'a>,
        strides: Value<'a>,
    ) -> Result<Value<'a>, Fault> {
        let (Value::Storage(storage), Value::Tuple(shape), Value::Tuple(strides)) = (storage, shape, strides) else {
            return Err(self.damaged());
        };
        let counts = (offset.count(), self.counts(shape), self.counts(strides));
        let (Some(offset), Some(sides), Some(strides)) = counts else { return Err(self.damaged()) };
        match is_row_major(&sides, &strides) {
            true => Ok(Value::Tensor(storage, offset, shape)),
            false => Err(not_read("only contiguous tensors are supported")),
        }
    }

    fn counts(&self, tuple: usize) -> Option<Vec<usize>> {
        self.lists[tuple].iter().map(|value| value.count()).collect()
    }

    fn found(&self, name: Value<'a>, tensor: Value<'a>) -> Result<Found<'a>, Fault> {
        let Value::Str(name) = name else {
            return Err(not_read(format!("the state dict has {} as a key", name.kind())));
        };
        let Value::Tensor(storage, offset, shape) = tensor else {
            return Err(not_read(format!("`{name}` is {}, expected a tensor", tensor.kind())));
        };
        Ok(Found { name, storage, offset, shape: self.counts(shape).unwrap_or_default() })
    }
}

/// Whether strides are those of a contiguous tensor.
fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    let mut step = 1_usize;
    let mut is_in_order = shape.len() == strides.len();
    for (&side, &stride) in shape.iter().zip(strides).rev() {
        is_in_order &= side <= 1 || stride == step;
        step = step.saturating_mul(side);
    }
    is_in_order
}
