use proptest::prelude::*;

use super::*;

/// An archive of entries that are stored as they are, in the plain form of zip.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut list) = (Vec::new(), Vec::new());
    for (name, contents) in entries {
        let (offset, length) = (bytes.len() as u32, contents.len() as u32);
        let head = |to: &mut Vec<u8>| {
            // Version, flags, method, time, date, checksum, two sizes, and how long the names are.
            to.extend([0; 14]);
            to.extend(length.to_le_bytes());
            to.extend(length.to_le_bytes());
            to.extend((name.len() as u16).to_le_bytes());
            to.extend([0; 2]);
        };
        bytes.extend(b"PK\x03\x04");
        head(&mut bytes);
        bytes.extend(name.bytes());
        bytes.extend(*contents);
        list.extend(b"PK\x01\x02\0\0");
        head(&mut list);
        list.extend([0; 10]);
        list.extend(offset.to_le_bytes());
        list.extend(name.bytes());
    }
    let (place, count) = (bytes.len() as u32, entries.len() as u16);
    bytes.extend(&list);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend((list.len() as u32).to_le_bytes());
    bytes.extend(place.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// The opcodes of a pickle.
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        Self(b"\x80\x02".to_vec())
    }

    fn step(mut self, step: &[u8]) -> Self {
        self.0.extend(step);
        self
    }

    fn text(self, text: &str) -> Self {
        let length = (text.len() as u32).to_le_bytes();
        self.step(b"X").step(&length).step(text.as_bytes())
    }

    fn named(self, module: &str, name: &str) -> Self {
        self.step(format!("c{module}\n{name}\n").as_bytes())
    }

    /// A tensor of two rows of three, over six numbers of a storage.
    fn tensor(self, storage: &str, strides: [u8; 2]) -> Self {
        let begun =
            self.named("torch._utils", "_rebuild_tensor_v2").step(b"((").text("storage").named("torch", storage);
        let stored = begun.text("0").text("cpu").step(b"K\x06tQK\x00K\x02K\x03\x86");
        let placed = stored.step(&[b'K', strides[0], b'K', strides[1], 0x86]);
        placed.step(b"\x89").named("collections", "OrderedDict").step(b")RtR")
    }

    /// A state dict with one tensor of this storage.
    fn state_dict(storage: &str, strides: [u8; 2]) -> Vec<u8> {
        let begun = Self::new().named("collections", "OrderedDict").step(b")Rq\x00(").text("w");
        begun.tensor(storage, strides).step(b"u.").0
    }
}

fn file(pickle: &[u8], numbers: &[u8]) -> Vec<u8> {
    archive(&[("it/data.pkl", pickle), ("it/byteorder", b"little"), ("it/data/0", numbers)])
}

fn refused(bytes: &[u8]) -> String {
    match tensors(bytes).unwrap_err() {
        Fault::Damaged(reason) => format!("damaged: {reason}"),
        Fault::NotRead(reason) => format!("not read: {reason}"),
    }
}

#[test]
fn a_state_dict_is_found_with_its_numbers() {
    let known = [("FloatStorage", 4, StoredType::F32), ("HalfStorage", 2, StoredType::F16)];
    for (storage, width, stored_as) in known.into_iter().chain([("BFloat16Storage", 2, StoredType::BF16)]) {
        let numbers: Vec<u8> = (0..6 * width).collect();
        let bytes = file(&Pickle::state_dict(storage, [3, 1]), &numbers);
        let found = tensors(&bytes).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), &found[0].shape[..], found[0].stored_as), ("w", &[2, 3][..], stored_as));
        assert_eq!(bytes[found[0].bytes.clone()], numbers);
    }
}

#[test]
fn missing_or_truncated_data_is_reported() {
    let pickle = Pickle::state_dict("FloatStorage", [3, 1]);
    let without = archive(&[("it/data.pkl", &pickle)]);
    assert_eq!(refused(&without), "damaged: the data of `w` is missing");
    assert_eq!(refused(&file(&pickle, &[0; 23])), "damaged: `w` needs more than the 23 bytes stored");
}

#[test]
fn nothing_is_executed_and_the_call_is_named() {
    let call = Pickle::new().named("os", "system").text("rm -r /").step(b"\x85R.").0;
    let reason = "not read: the pickle calls `os.system`; nothing in a pickle is executed";
    assert_eq!(refused(&file(&call, &[])), reason);
    let build = Pickle::new().named("os", "environ").step(b"}b.").0;
    assert_eq!(refused(&file(&build, &[])), "not read: the pickle sets attributes of `os.environ`");
}

#[test]
fn unsupported_pickles_are_refused_with_the_reason() {
    let of = |steps: &[u8]| refused(&file(&Pickle::new().step(steps).0, &[]));
    assert_eq!(of(b"K\x01."), "not read: expected a state dict, found a number");
    assert_eq!(of(b"]."), "not read: pickle opcode 0x5d is not supported");
    assert_eq!(of(b"}K\x01K\x02s."), "not read: the state dict has a number as a key");
    assert_eq!(of(b"}X\x01\0\0\0eK\x02s."), "not read: `e` is a number, expected a tensor");
    assert_eq!(of(b"K"), "damaged: the pickle is damaged at byte 3");
    assert_eq!(of(b"t."), "damaged: the pickle is damaged at byte 3");
    assert_eq!(refused(&file(b"\x80\x04.", &[])), "not read: pickle protocol 4 is not supported, expected 2");
    let strange = Pickle::state_dict("ComplexFloatStorage", [3, 1]);
    assert_eq!(refused(&file(&strange, &[0; 48])), "not read: `torch.ComplexFloatStorage` is not supported");
    let turned = Pickle::state_dict("FloatStorage", [1, 2]);
    assert_eq!(refused(&file(&turned, &[0; 24])), "not read: only contiguous tensors are supported");
}

#[test]
fn dicts_that_are_fetched_again_and_deep_nesting_are_read() {
    let of = |steps: &[u8]| tensors(&file(&Pickle::new().step(steps).0, &[])).map(|found| found.len());
    assert_eq!(of(b"}q\x00h\x00."), Ok(0));
    let deep = [b")".as_slice(), &[0x85; 100_000], b"}."].concat();
    assert_eq!(of(&deep), Ok(0));
}

#[test]
fn unsupported_archives_are_refused_with_the_reason() {
    let pickle = Pickle::state_dict("FloatStorage", [3, 1]);
    assert_eq!(refused(&archive(&[("a/b", b"")])), "not read: `data.pkl` is missing, so `torch.save` did not write it");
    let big = archive(&[("it/data.pkl", &pickle), ("it/byteorder", b"big"), ("it/data/0", &[0; 24])]);
    assert_eq!(refused(&big), "not read: big-endian data is not supported");
    let mut packed = file(&pickle, &[0; 24]);
    let list = packed.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    packed[list + 10] = 8;
    assert_eq!(refused(&packed), "not read: `it/data.pkl` is compressed or encrypted");
    let mut far = file(&pickle, &[0; 24]);
    far[list + 42..list + 46].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    assert!(refused(&far).starts_with("damaged: "), "{}", refused(&far));
}

#[test]
fn long_numbers_have_the_sign_of_their_last_byte() {
    for (bytes, expected) in
        [(&b"\x8a\x02\x34\x12"[..], 0x1234), (b"\x8a\x01\xff", -1), (b"\x8a\x02\x00\xff", -256), (b"\x8a\x00", 0)]
    {
        // Seen as the offset of a tensor, which must not be negative.
        let begun = Pickle::new().step(b"}").text("w").named("torch._utils", "_rebuild_tensor_v2").step(b"((");
        let stored = begun.text("storage").named("torch", "ByteStorage").text("0").text("cpu").step(b"M\x00\x20tQ");
        let whole = stored.step(bytes).step(b"))\x89NtRs.").0;
        match tensors(&file(&whole, &[0; 0x2000])) {
            Ok(found) => assert_eq!(found[0].bytes.start - expected as usize, tensors_begin(&whole)),
            Err(_) => assert!(expected < 0, "{expected}"),
        }
    }
}

/// The offset of the data in a file with this pickle.
fn tensors_begin(pickle: &[u8]) -> usize {
    entries(&file(pickle, &[0; 0x2000])).unwrap()["data/0"].start
}

/// A file as torch wrote it.
fn written() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/c2c/short_Fuser/final/projector_0.pt");
    std::fs::read(path).unwrap()
}

#[test]
fn a_file_of_torch_has_every_tensor_of_a_projector() {
    let bytes = written();
    let found = tensors(&bytes).unwrap();
    assert_eq!(found.len(), 2 * 19 + 1);
    let gate = found.iter().find(|tensor| tensor.name == "key_gate_logit").unwrap();
    assert_eq!((gate.shape.len(), gate.bytes.len()), (0, 2));
    assert!(found.iter().all(|tensor| tensor.bytes.end <= bytes.len()));
}

proptest! {
    #[test]
    fn a_file_with_other_bytes_is_read_or_refused_and_nothing_reaches_out_of_it(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let mut bytes = written();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(found) = tensors(&bytes) {
            prop_assert!(found.iter().all(|tensor| tensor.bytes.end <= bytes.len()));
        }
    }

    #[test]
    fn a_pickle_with_other_bytes_is_read_or_refused(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut pickle = Pickle::state_dict("FloatStorage", [3, 1]);
        for (at, byte) in flips {
            let at = at.index(pickle.len());
            pickle[at] = byte;
        }
        let _ = pickle::state_dict(&pickle);
    }

    #[test]
    fn opcodes_in_any_order_end_without_a_panic(
        steps in proptest::collection::vec(proptest::sample::select(&b"()}NKMJXcqrhjtsuQRb.\x85\x86\x87\x88\x8a\x00\x01\n"[..]), 0..300),
    ) {
        let _ = pickle::state_dict(&[b"\x80\x02".as_slice(), &steps].concat());
    }
}
