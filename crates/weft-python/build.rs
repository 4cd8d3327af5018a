//! Lets the linker fold functions of equal machine code into one: the extension module takes less room in the wheel.

/// What the compiler's own linker understands, which links for this target by default.
const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("TARGET").is_ok_and(|target| target == TARGET) {
        println!("cargo:rustc-link-arg-cdylib=-Wl,--icf=all");
    }
}
