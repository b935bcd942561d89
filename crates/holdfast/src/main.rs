//! The holdfast binary.

fn main() -> std::process::ExitCode {
    holdfast::main()
}
