//! Writes blocks of every type and encoding into `corpus/block`, for the fuzzer to begin with.

use std::fs;

use weft_codec::{Compression, Options, encode};

fn main() -> std::io::Result<()> {
    fs::create_dir_all("corpus/block")?;
    let shapes: [&dyn Fn(usize) -> u8; 5] = [
        &|i| i as u8,
        &|i| (i / 97) as u8,
        &|i| (i * i % 7) as u8,
        &|i| b"carefully final deposits\nquick foxes "[i % 37],
        &|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as u8,
    ];
    for kind in 0..13 {
        for (number, shape) in shapes.iter().enumerate() {
            for (nulls, len) in [(0, 300), (5, 6000), (0, 20_000)] {
                let bytes: Vec<u8> = [kind, nulls].into_iter().chain((0..len).map(shape)).collect();
                let Some(array) = weft_fuzz::column(&bytes) else { continue };
                for (name, compression) in [
                    ("none", Compression::None),
                    ("lz4", Compression::Lz4),
                    ("zstd", Compression::Zstd(1)),
                ] {
                    let options = Options { compression, ..Options::default() };
                    let block = encode(&array, &options).map_err(std::io::Error::other)?;
                    fs::write(format!("corpus/block/{kind}-{number}-{len}-{name}"), block)?;
                }
            }
        }
    }
    Ok(())
}
