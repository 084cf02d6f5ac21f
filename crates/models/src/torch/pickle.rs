//! The pickle of a state dict: the steps that `torch.save` writes, and no others.

use std::{collections::HashMap, rc::Rc};

use safetensors::tensor::Dtype as StoredType;

use super::Fault;

/// How deep tuples and dicts may nest: a state dict with its versions has four.
const DEEPEST: u8 = 8;

#[derive(Debug)]
pub struct Found {
    pub name: String,
    pub place: Rc<Place>,
}

#[derive(Debug)]
pub struct Place {
    pub storage: Rc<Storage>,
    /// The first number of the storage that is its own.
    pub offset: usize,
    pub shape: Vec<usize>,
}

#[derive(Debug)]
pub struct Storage {
    pub key: String,
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

#[derive(Debug, Clone)]
enum Value {
    Nothing,
    Whole(i64),
    Text(Rc<str>),
    Tuple(Rc<Items>),
    Dict(Items),
    /// Something of a module, by its name; never what it stands for.
    Named(Rc<str>),
    Storage(Rc<Storage>),
    Tensor(Rc<Place>),
    /// Where a tuple or the items of a dict begin.
    Mark,
}

/// What a tuple or a dict has: of a dict, keys and values in turn.
#[derive(Debug, Clone, Default)]
struct Items {
    values: Vec<Value>,
    /// How deep it nests, itself included.
    depth: u8,
}

impl Value {
    fn depth(&self) -> u8 {
        match self {
            Self::Tuple(items) => items.depth,
            Self::Dict(items) => items.depth,
            _ => 0,
        }
    }

    fn kind(&self) -> String {
        let kind = match self {
            Self::Nothing => "nothing",
            Self::Whole(_) => "a number",
            Self::Text(_) => "a text",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Named(name) => return format!("`{name}`"),
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
            Self::Mark => "a mark",
        };
        kind.to_owned()
    }

    fn count(&self) -> Option<usize> {
        match self {
            Self::Whole(number) => usize::try_from(*number).ok(),
            _ => None,
        }
    }

    fn counts(&self) -> Option<Vec<usize>> {
        match self {
            Self::Tuple(items) => items.values.iter().map(Self::count).collect(),
            _ => None,
        }
    }
}

impl Items {
    fn add(&mut self, values: impl IntoIterator<Item = Value>) -> Result<(), Fault> {
        for value in values {
            self.depth = self.depth.max(value.depth() + 1);
            self.values.push(value);
        }
        if self.depth > DEEPEST { Err(not_read("its pickle nests deeper than a state dict does")) } else { Ok(()) }
    }
}

pub fn state_dict(pickle: &[u8]) -> Result<Vec<Found>, Fault> {
    let mut machine = Machine { pickle, at: 0, stack: Vec::new(), kept: HashMap::new() };
    let whole = loop {
        if let Some(whole) = machine.step()? {
            break whole;
        }
    };
    let Value::Dict(items) = whole else {
        return Err(not_read(&format!("it holds {} and not a state dict", whole.kind())));
    };
    let (pairs, _) = items.values.as_chunks();
    pairs.iter().map(|[name, tensor]| found(name, tensor)).collect()
}

fn found(name: &Value, tensor: &Value) -> Result<Found, Fault> {
    let Value::Text(name) = name else {
        return Err(not_read(&format!("its state dict has {} for a name", name.kind())));
    };
    match tensor {
        Value::Tensor(place) => Ok(Found { name: name.to_string(), place: Rc::clone(place) }),
        other => Err(not_read(&format!("`{name}` in it is {} and no tensor", other.kind()))),
    }
}

fn not_read(reason: &str) -> Fault {
    Fault::NotRead(reason.to_owned())
}

/// What the pickle holds, at its end.
type Stepped = Result<Option<Value>, Fault>;

/// A pickle that is followed step by step.
struct Machine<'a> {
    pickle: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    kept: HashMap<u32, Value>,
}

impl Machine<'_> {
    fn step(&mut self) -> Stepped {
        let [step] = self.take::<1>()?;
        let value = match step {
            0x80 => return self.check_protocol(),
            b'(' => Value::Mark,
            b')' => Value::Tuple(Rc::default()),
            b'}' => Value::Dict(Items::default()),
            b'N' | 0x88 | 0x89 => Value::Nothing,
            b'K' => Value::Whole(i64::from(u8::from_le_bytes(self.take()?))),
            b'M' => Value::Whole(i64::from(u16::from_le_bytes(self.take()?))),
            b'J' => Value::Whole(i64::from(i32::from_le_bytes(self.take()?))),
            0x8a => Value::Whole(self.long()?),
            b'X' => self.text()?,
            b'c' => Value::Named(format!("{}.{}", self.line()?, self.line()?).into()),
            b'q' | b'r' => return self.keep(step),
            b'h' | b'j' => self.fetch(step)?,
            b't' | 0x85..=0x87 => self.tuple(step)?,
            b's' | b'u' => return self.set_items(step),
            b'Q' => self.storage()?,
            b'R' => self.call()?,
            b'b' => return self.build(),
            b'.' => return self.pop().map(Some),
            other => return Err(not_read(&format!("its pickle has a step {other:#04x}, which torch does not write"))),
        };
        self.stack.push(value);
        Ok(None)
    }

    fn damaged(&self) -> Fault {
        Fault::Damaged(format!("its pickle is damaged at byte {}", self.at))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let bytes = self.pickle.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let bytes = *bytes.ok_or_else(|| self.damaged())?;
        self.at += N;
        Ok(bytes)
    }

    fn pop(&mut self) -> Result<Value, Fault> {
        self.stack.pop().ok_or_else(|| self.damaged())
    }

    fn check_protocol(&mut self) -> Stepped {
        match self.take()? {
            [2] => Ok(None),
            [other] => Err(not_read(&format!("its pickle is of protocol {other}, and torch writes 2"))),
        }
    }

    /// A number of up to eight bytes, low byte first, with the sign in the highest bit.
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

    fn text(&mut self) -> Result<Value, Fault> {
        let length = u32::from_le_bytes(self.take()?) as usize;
        let bytes = self.pickle.get(self.at..).and_then(|rest| rest.get(..length)).ok_or_else(|| self.damaged())?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.damaged())?;
        self.at += length;
        Ok(Value::Text(text.into()))
    }

    fn line(&mut self) -> Result<String, Fault> {
        let rest = &self.pickle[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or_else(|| self.damaged())?;
        self.at += length + 1;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    fn index(&mut self, is_short: bool) -> Result<u32, Fault> {
        match is_short {
            true => Ok(u32::from(u8::from_le_bytes(self.take()?))),
            false => Ok(u32::from_le_bytes(self.take()?)),
        }
    }

    fn keep(&mut self, step: u8) -> Stepped {
        let index = self.index(step == b'q')?;
        let value = match self.stack.last() {
            None => return Err(self.damaged()),
            // Never fetched: see there.
            Some(Value::Dict(_)) => Value::Dict(Items::default()),
            Some(value) => value.clone(),
        };
        self.kept.insert(index, value);
        Ok(None)
    }

    fn fetch(&mut self, step: u8) -> Result<Value, Fault> {
        let index = self.index(step == b'h')?;
        match self.kept.get(&index).cloned() {
            None => Err(self.damaged()),
            // What was put in since it was kept would be missing.
            Some(Value::Dict(_)) => Err(not_read("its pickle has one dict twice")),
            Some(value) => Ok(value),
        }
    }

    fn behind_mark(&mut self) -> Result<Vec<Value>, Fault> {
        let mark = self.stack.iter().rposition(|value| matches!(value, Value::Mark)).ok_or_else(|| self.damaged())?;
        let values = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(values)
    }

    fn tuple(&mut self, step: u8) -> Result<Value, Fault> {
        let values = match step {
            b't' => self.behind_mark()?,
            _ => {
                let from = self.stack.len().checked_sub(usize::from(step - 0x84)).ok_or_else(|| self.damaged())?;
                self.stack.split_off(from)
            }
        };
        let mut items = Items::default();
        items.add(values)?;
        Ok(Value::Tuple(Rc::new(items)))
    }

    fn set_items(&mut self, step: u8) -> Stepped {
        let values = match step {
            b'u' => self.behind_mark()?,
            _ => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
        };
        match self.stack.last_mut() {
            Some(Value::Dict(items)) if values.len().is_multiple_of(2) => items.add(values).map(|()| None),
            _ => Err(self.damaged()),
        }
    }

    /// A storage: `("storage", type, name in the archive, device, numbers)`.
    fn storage(&mut self) -> Result<Value, Fault> {
        let Value::Tuple(items) = self.pop()? else { return Err(self.damaged()) };
        let [Value::Text(word), Value::Named(class), Value::Text(key), _, count] = items.values.as_slice() else {
            return Err(not_read("its pickle refers to something that is no storage"));
        };
        let count = count.count().filter(|_| **word == *"storage").ok_or_else(|| self.damaged())?;
        let known = STORAGES.into_iter().find(|(name, _)| class.strip_prefix("torch.") == Some(*name));
        let Some((_, stored_as)) = known else { return Err(not_read(&format!("its numbers are in a `{class}`"))) };
        Ok(Value::Storage(Rc::new(Storage { key: key.to_string(), stored_as, count })))
    }

    /// The calls that a state dict needs; none is made, what they would give is put together here.
    fn call(&mut self) -> Result<Value, Fault> {
        let (with, what) = (self.pop()?, self.pop()?);
        let (Value::Tuple(with), Value::Named(what)) = (with, what) else { return Err(self.damaged()) };
        Ok(match (&*what, with.values.as_slice()) {
            ("collections.OrderedDict", []) => Value::Dict(Items::default()),
            ("torch._utils._rebuild_tensor_v2", [storage, offset, shape, strides, ..]) => {
                Value::Tensor(Rc::new(self.tensor([storage, offset, shape, strides])?))
            }
            ("torch._utils._rebuild_parameter", [tensor @ Value::Tensor(_), ..]) => tensor.clone(),
            _ => return Err(not_read(&format!("its pickle calls `{what}`, and nothing of a pickle is executed here"))),
        })
    }

    fn tensor(&self, [storage, offset, shape, strides]: [&Value; 4]) -> Result<Place, Fault> {
        let Value::Storage(storage) = storage else { return Err(self.damaged()) };
        let counts = (offset.count(), shape.counts(), strides.counts());
        let (Some(offset), Some(shape), Some(strides)) = counts else { return Err(self.damaged()) };
        match is_row_by_row(&shape, &strides) {
            true => Ok(Place { storage: Rc::clone(storage), offset, shape }),
            false => Err(not_read("a tensor in it is not stored row by row")),
        }
    }

    /// Attributes of a dict, such as the versions of its modules, which say nothing about its tensors.
    fn build(&mut self) -> Stepped {
        self.pop()?;
        match self.stack.last() {
            Some(Value::Dict(_)) => Ok(None),
            Some(other) => Err(not_read(&format!("its pickle sets attributes of {}", other.kind()))),
            None => Err(self.damaged()),
        }
    }
}

/// Whether the numbers of a tensor lie in the order of its indices, without gaps.
fn is_row_by_row(shape: &[usize], strides: &[usize]) -> bool {
    let mut step = 1_usize;
    let mut is_in_order = shape.len() == strides.len();
    for (&side, &stride) in shape.iter().zip(strides).rev() {
        is_in_order &= side <= 1 || stride == step;
        step = step.saturating_mul(side);
    }
    is_in_order
}
