//! Compresses the font of the charts, which halves it.

use std::{env, fs::File, path::PathBuf};

use flate2::{Compression, write::ZlibEncoder};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (name, font) in [("regular", dejavu::sans::regular()), ("bold", dejavu::sans::bold())] {
        let file = File::create(out.join(name)).expect("OUT_DIR is writable");
        let mut packed = ZlibEncoder::new(file, Compression::best());
        std::io::Write::write_all(&mut packed, font).and_then(|()| packed.finish()).expect("OUT_DIR is writable");
    }
}
