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

/// The steps of a pickle.
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
fn numbers_that_are_missing_or_too_few_are_told() {
    let pickle = Pickle::state_dict("FloatStorage", [3, 1]);
    let without = archive(&[("it/data.pkl", &pickle)]);
    assert_eq!(refused(&without), "damaged: the numbers of `w` are missing");
    assert_eq!(refused(&file(&pickle, &[0; 23])), "damaged: the numbers of `w` are more than the 23 bytes there");
}

#[test]
fn nothing_is_executed_and_what_was_to_be_is_named() {
    let call = Pickle::new().named("os", "system").text("rm -r /").step(b"\x85R.").0;
    let reason = "not read: its pickle calls `os.system`, and nothing of a pickle is executed here";
    assert_eq!(refused(&file(&call, &[])), reason);
    let build = Pickle::new().named("os", "environ").step(b"}b.").0;
    assert_eq!(refused(&file(&build, &[])), "not read: its pickle sets attributes of `os.environ`");
}

#[test]
fn what_torch_does_not_write_of_a_state_dict_is_named() {
    let of = |steps: &[u8]| refused(&file(&Pickle::new().step(steps).0, &[]));
    assert_eq!(of(b"K\x01."), "not read: it holds a number and not a state dict");
    assert_eq!(of(b"]."), "not read: its pickle has a step 0x5d, which torch does not write");
    assert_eq!(of(b"}K\x01K\x02s."), "not read: its state dict has a number for a name");
    assert_eq!(of(b"}X\x01\0\0\0eK\x02s."), "not read: `e` in it is a number and no tensor");
    assert_eq!(of(b"}q\x00h\x00."), "not read: its pickle has one dict twice");
    assert_eq!(
        of(&[b')', 0x85, 0x85, 0x85, 0x85, 0x85, 0x85, 0x85, 0x85, 0x85]),
        "not read: its pickle nests deeper than a state dict does"
    );
    assert_eq!(of(b"K"), "damaged: its pickle is damaged at byte 3");
    assert_eq!(of(b"t."), "damaged: its pickle is damaged at byte 3");
    assert_eq!(refused(&file(b"\x80\x04.", &[])), "not read: its pickle is of protocol 4, and torch writes 2");
    let strange = Pickle::state_dict("ComplexFloatStorage", [3, 1]);
    assert_eq!(refused(&file(&strange, &[0; 48])), "not read: its numbers are in a `torch.ComplexFloatStorage`");
    let turned = Pickle::state_dict("FloatStorage", [1, 2]);
    assert_eq!(refused(&file(&turned, &[0; 24])), "not read: a tensor in it is not stored row by row");
}

#[test]
fn archives_that_are_not_of_torch_are_named() {
    let pickle = Pickle::state_dict("FloatStorage", [3, 1]);
    assert_eq!(refused(&archive(&[("a/b", b"")])), "not read: it has no `data.pkl`, so it is no file of torch");
    let big = archive(&[("it/data.pkl", &pickle), ("it/byteorder", b"big"), ("it/data/0", &[0; 24])]);
    assert_eq!(refused(&big), "not read: its numbers are high byte first");
    let mut packed = file(&pickle, &[0; 24]);
    let list = packed.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    packed[list + 10] = 8;
    assert_eq!(refused(&packed), "not read: `it/data.pkl` in it is compressed or locked");
    let mut far = file(&pickle, &[0; 24]);
    far[list + 42..list + 46].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    assert!(refused(&far).starts_with("damaged: "), "{}", refused(&far));
}

#[test]
fn long_numbers_have_the_sign_of_their_last_byte() {
    for (bytes, expected) in
        [(&b"\x8a\x02\x34\x12"[..], 0x1234), (b"\x8a\x01\xff", -1), (b"\x8a\x02\x00\xff", -256), (b"\x8a\x00", 0)]
    {
        // Told as the place of a tensor's first number, which must not be below 0.
        let begun = Pickle::new().step(b"}").text("w").named("torch._utils", "_rebuild_tensor_v2").step(b"((");
        let stored = begun.text("storage").named("torch", "ByteStorage").text("0").text("cpu").step(b"M\x00\x20tQ");
        let whole = stored.step(bytes).step(b"))\x89NtRs.").0;
        match tensors(&file(&whole, &[0; 0x2000])) {
            Ok(found) => assert_eq!(found[0].bytes.start - expected as usize, tensors_begin(&whole)),
            Err(_) => assert!(expected < 0, "{expected}"),
        }
    }
}

/// Where the numbers begin in a file with this pickle.
fn tensors_begin(pickle: &[u8]) -> usize {
    Archive::read(&file(pickle, &[0; 0x2000])).unwrap().entry("data/0").unwrap().start
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
    fn steps_in_any_order_are_followed_to_an_end(
        steps in proptest::collection::vec(proptest::sample::select(&b"()}NKMJXcqrhjtsuQRb.\x85\x86\x87\x88\x8a\x00\x01\n"[..]), 0..300),
    ) {
        let _ = pickle::state_dict(&[b"\x80\x02".as_slice(), &steps].concat());
    }
}
