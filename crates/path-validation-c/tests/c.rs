//! Programs in C, against the library as it is linked: shared and static, and with valgrind looking on.

use std::{
    ffi::OsStr,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo has put what this test is linked with, and the forms for C beside it.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let library = test.with_file_name(name);
    assert!(library.exists(), "{} is not there", library.display());
    library
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Octets of hexadecimal digits, as C has them.
fn array(digits: &Value) -> String {
    let digits = digits.as_str().expect("digits").as_bytes().as_chunks().0;
    digits.iter().fold(String::new(), |mut octets, [high, low]| {
        write!(octets, "0x{}{},", char::from(*high), char::from(*low)).expect("a string takes it");
        octets
    })
}

fn octets(digits: &Value) -> String {
    let array = array(digits);
    format!("{{ (const uint8_t[]){{ {array} }}, {} }}", array.matches(',').count())
}

/// The examples of RFC 8608 for a program in C.
fn vectors() -> String {
    let text = fs::read_to_string(folder().join("../bgpsec-wire/tests/rfc8608.json")).expect("vectors");
    let vectors: Value = serde_json::from_str(&text).expect("JSON");
    let list = |name: &str| vectors[name].as_array().cloned().expect("a list");
    let (keys, updates) = (list("keys"), list("updates"));
    let mut header = format!(
        "#include <stddef.h>\n#include <stdint.h>\n#define VERSION \"{}\"\n#define ROUTERS {}\n#define UPDATES {}\n\
         struct octets {{ const uint8_t *at; size_t length; }};\n\
         struct router {{ uint32_t asn; uint8_t ski[20]; struct octets spki, sec1, pkcs8; }};\n\
         struct update {{ uint16_t afi; uint8_t safi; uint32_t target; struct octets nlri, path; }};\n",
        env!("CARGO_PKG_VERSION"),
        keys.len(),
        updates.len()
    );
    header += "static const struct router routers[] = {\n";
    for key in keys {
        let forms =
            ["spki_der", "private_sec1_der", "private_pkcs8_der"].map(|form| octets(&key[form])).join(", ");
        writeln!(header, "{{ {}, {{ {} }}, {forms} }},", key["asn"], array(&key["ski"])).expect("a string");
    }
    header += "};\nstatic const struct update updates[] = {\n";
    for update in updates {
        let [afi, safi, target] = ["afi", "safi", "receiver_asn"].map(|name| &update[name]);
        let (nlri, path) = (octets(&update["nlri"]), octets(&update["bgpsec_path"]));
        writeln!(header, "{{ {afi}, {safi}, {target}, {nlri}, {path} }},").expect("a string");
    }
    header + "};\n"
}

fn story() -> PathBuf {
    folder().join("tests/c/story.c")
}

/// A place where the library is installed, and the program.
struct Workshop(TempDir);

impl Workshop {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        fs::write(place.path().join("vectors.h"), vectors()).expect("a file");
        let script = folder().join("../../scripts/install-library");
        let built = built("libholdfast_bgpsec.so");
        run(Command::new(script).args([built.parent().expect("a folder"), "".as_ref(), place.path()]));
        Self(place)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// What pkg-config says of the library.
    fn said(&self, name: &str) -> Vec<String> {
        let file = fs::read_to_string(self.at("lib/pkgconfig/holdfast-bgpsec.pc")).expect("the file");
        let value = |name: &str| {
            file.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix([':', '=']))
                .expect("a line")
                .trim()
        };
        let text =
            value(name).replace("${libdir}", value("libdir")).replace("${includedir}", value("includedir"));
        text.replace("${prefix}", value("prefix")).split(' ').map(str::to_owned).collect()
    }

    /// A program, linked with this.
    fn compile(&self, source: &Path, libraries: &[String]) -> PathBuf {
        let program = self.at("program");
        let mut compiler = Command::new("cc");
        compiler.args([
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ]);
        compiler.args(self.said("Cflags")).arg("-I").arg(self.0.path());
        compiler.arg(source).arg("-o").arg(&program);
        run(compiler.args(libraries));
        program
    }

    fn shared(&self) -> PathBuf {
        self.compile(&story(), &[self.said("Libs"), vec!["-lpthread".to_owned()]].concat())
    }

    /// The program as somebody runs it who has installed the library elsewhere than the system has its own.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.at("lib"));
        command
    }
}

#[test]
fn a_program_runs_with_the_shared_library() {
    let workshop = Workshop::new();
    let program = workshop.shared();
    run(&mut workshop.command(&program));
    // It is looked for by a name that has the version of its interface.
    let needed = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(needed.contains("[libholdfast_bgpsec.so.1]"), "{needed}");
    assert_eq!(workshop.said("Version"), [env!("CARGO_PKG_VERSION")]);
}

#[test]
fn a_program_runs_with_the_static_library() {
    let workshop = Workshop::new();
    let library = workshop.at("lib/libholdfast_bgpsec.a").display().to_string();
    // What it needs besides is what pkg-config says.
    run(&mut Command::new(
        workshop.compile(&story(), &[vec![library], workshop.said("Libs.private")].concat()),
    ));
}

#[test]
fn what_is_installed_has_no_symbols_of_its_own() {
    let workshop = Workshop::new();
    let sections = |file: &str| run(Command::new("readelf").arg("-SW").arg(workshop.at(file)));
    let shared = sections("lib/libholdfast_bgpsec.so");
    assert!(shared.contains(".dynsym") && !shared.contains(".symtab") && !shared.contains(".debug_info"));
    assert!(!sections("lib/libholdfast_bgpsec.a").contains(".debug_info"));
}

#[test]
fn the_example_of_the_manual_runs() {
    let page = fs::read_to_string(folder().join("../../docs/manual/bgpsec.md")).expect("the page");
    let (_, rest) = page.split_once("\n```c\n").expect("an example");
    let (example, _) = rest.split_once("\n```\n").expect("its end");
    let workshop = Workshop::new();
    let source = workshop.at("first.c");
    fs::write(&source, format!("{example}\n")).expect("a file");
    let program = workshop.compile(&source, &workshop.said("Libs"));
    assert_eq!(run(&mut workshop.command(program)), "valid\n");
}

#[test]
fn valgrind_sees_nothing_read_or_lost_that_must_not_be() {
    let workshop = Workshop::new();
    let program = workshop.shared();
    let mut valgrind = workshop.command("valgrind");
    valgrind.args(["--quiet", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible"]);
    valgrind.args(["--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=99"]);
    run(valgrind.arg(program));
}

#[test]
fn the_shared_library_has_what_the_header_has_and_no_more() {
    let header = fs::read_to_string(folder().join("include/holdfast_bgpsec.h")).expect("the header");
    let mut declared: Vec<&str> = header
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(')
        .filter_map(|word| word.split_once('('))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("hf_"))
        .collect();
    declared.sort_unstable();
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(built("libholdfast_bgpsec.so")));
    let mut exported: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next_back()).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
}
