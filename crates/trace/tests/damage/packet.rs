//! Hand-built Perfetto packets, valid and invalid.

/// A protobuf message under construction.
#[derive(Debug, Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn new() -> Self {
        Self::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a number.
    pub fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// Adds bytes, text or another message.
    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// A file of these packets.
pub fn file(packets: &[Message]) -> Vec<u8> {
    packets.iter().fold(Message::new(), |file, packet| file.bytes(1, &packet.0)).0
}

/// The description of a track with a name and a parent.
pub fn track(uuid: u64, name: &str, parent: u64) -> Message {
    Message::new().bytes(60, &Message::new().number(1, uuid).bytes(2, name.as_bytes()).number(5, parent).0)
}

/// The description of a process.
pub fn process(uuid: u64, pid: u64) -> Message {
    Message::new().bytes(60, &Message::new().number(1, uuid).bytes(3, &Message::new().number(1, pid).0).0)
}

/// The description of a lane, as written by our writer.
pub fn lane(uuid: u64, parent: u64) -> Message {
    let descriptor = Message::new().number(1, uuid).number(5, parent).bytes(14, b"lane of the track above");
    Message::new().bytes(60, &descriptor.0)
}

fn event(kind: u64, time: u64, uuid: u64, name: &str) -> Message {
    let event = Message::new().number(9, kind).number(11, uuid).bytes(23, name.as_bytes());
    Message::new().number(8, time).number(10, 1).bytes(11, &event.0)
}

pub fn begin(time: u64, uuid: u64, name: &str) -> Message {
    event(1, time, uuid, name)
}

pub fn end(time: u64, uuid: u64) -> Message {
    event(2, time, uuid, "")
}

pub fn value(time: u64, uuid: u64, value: u64) -> Message {
    let event = Message::new().number(9, 4).number(11, uuid).number(30, value);
    Message::new().number(8, time).number(10, 1).bytes(11, &event.0)
}

/// Packets compressed into one.
pub fn compressed(packets: &[u8]) -> Message {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(packets).unwrap();
    Message::new().bytes(50, &encoder.finish().unwrap())
}
