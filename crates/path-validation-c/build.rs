//! The name by which programs find the shared library.

/// Grows when a program that was linked with an earlier library would not run with this one.
const ABI: u32 = 1;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libholdfast_bgpsec.so.{ABI}");
}
