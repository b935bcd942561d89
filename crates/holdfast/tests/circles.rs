//! Modules of a crate that need each other are read, changed and tested only together: circles of them are kept small.
//!
//! A module is a file. It needs another one when its code, without `#[cfg(test)]` modules at the end of a file, names a path
//! into it (`crate::…`, `super::…`, `self::…`, in `use` or inline). A declaration (`mod x;`) and a re-export (`pub use`) need
//! nothing: who uses a name that is re-exported needs the module that has it, as far as the path says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::sources;

/// Modules that a circle may have.
const MOST: usize = 5;
/// The same of crates that have smaller ones, and are to keep it so.
const SMALLER: [(&str, usize); 2] = [("bgp-pipeline", 0), ("bgpd", 3)];

/// Modules of a crate by their path ("" is the root), and those that they need.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// What a file is called as a module: `a/b.rs`, `a/b/mod.rs`: "a::b".
fn module(file: &Path) -> String {
    let path = file.with_extension("");
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let parts = match parts.as_slice() {
        ["lib" | "main"] => &[],
        [folder @ .., "mod"] => folder,
        all => all,
    };
    parts.join("::")
}

/// The code of a file without comments, text, tests at its end, and re-exports.
fn code(text: &str) -> String {
    let text = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]);
    let mut code = String::new();
    let mut is_exported = false;
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        let line = line.trim_start();
        is_exported |= line.starts_with("pub use ");
        if !is_exported {
            code += line;
            code.push('\n');
        }
        is_exported &= !line.contains(';');
    }
    code
}

/// The paths that a `use` tree or an expression names from here on: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut outer: Vec<String> = Vec::new();
    let mut path = String::new();
    for character in text.chars() {
        match character {
            '{' if path.is_empty() || path.ends_with("::") => {
                outer.push(std::mem::take(&mut path));
            }
            ',' | '}' if !outer.is_empty() => {
                // After a group that has ended nothing is named.
                if !path.is_empty() {
                    paths.push(outer.concat() + &path);
                }
                path.clear();
                if character == '}' {
                    outer.pop();
                    if outer.is_empty() {
                        return paths;
                    }
                }
            }
            _ if character.is_alphanumeric() || character == '_' || character == ':' => path.push(character),
            _ if outer.is_empty() => break,
            _ => {}
        }
    }
    paths.push(path);
    paths
}

/// The module of these in which a path ends: the longest beginning that is one.
fn owner(graph: &BTreeSet<String>, path: &str) -> String {
    let parts: Vec<_> = path.split("::").filter(|part| !part.is_empty()).collect();
    let longest = (0..=parts.len()).rev().map(|length| parts[..length].join("::"));
    longest.into_iter().find(|name| graph.contains(name)).unwrap_or_default()
}

fn needs(modules: &BTreeSet<String>, module: &str, code: &str) -> BTreeSet<String> {
    let mut needed = BTreeSet::new();
    let own: Vec<_> = module.split("::").collect();
    for (start, base) in [("crate::", Vec::new()), ("super::", own.clone()), ("self::", own)] {
        for (place, _) in code.match_indices(start) {
            let before = code[..place].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut base = base.clone();
            let mut rest = &code[place..];
            while let Some(next) = rest.strip_prefix("super::") {
                base.pop();
                rest = next;
            }
            let rest = rest.strip_prefix("crate::").or(rest.strip_prefix("self::")).unwrap_or(rest);
            for path in paths(rest) {
                needed.insert(owner(modules, &format!("{}::{path}", base.join("::"))));
            }
        }
    }
    // Names in a folder's own file that are used without a path come from its own `use child::…`.
    for (place, _) in code.match_indices("use ") {
        for path in paths(&code[place + "use ".len()..]) {
            let child = format!("{module}::{path}");
            let child = owner(modules, &child);
            if child.len() > module.len() {
                needed.insert(child);
            }
        }
    }
    needed.remove(module);
    needed
}

fn graph(crate_: &Path) -> Graph {
    let source = crate_.join("src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let is_test = |name: &str| name.split("::").any(|part| part == "tests");
    let named = files.iter().map(|file| (module(file.strip_prefix(&source).expect("below")), file));
    let named: BTreeMap<_, _> = named.filter(|(name, _)| !is_test(name)).collect();
    let modules: BTreeSet<_> = named.keys().cloned().collect();
    let of = |(name, file): (&String, &&std::path::PathBuf)| {
        let text = fs::read_to_string(file).expect("a source");
        (name.clone(), needs(&modules, name, &code(&text)))
    };
    named.iter().map(of).collect()
}

/// What is reached from a module.
fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = open.pop() {
        for next in graph.get(&module).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    found
}

/// The largest set of modules that all need each other.
fn largest(graph: &Graph) -> BTreeSet<String> {
    let reach: BTreeMap<_, _> = graph.keys().map(|module| (module, reached(graph, module))).collect();
    let circle = |module: &String| -> BTreeSet<String> {
        reach[module].iter().filter(|other| reach[*other].contains(module)).cloned().collect()
    };
    graph.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn circles_of_modules_are_small() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for entry in fs::read_dir(crates).expect("the crates").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        let circle = largest(&graph(&entry.path()));
        let smaller = SMALLER.iter().find(|(smaller, _)| *smaller == name).map(|(_, size)| *size);
        if circle.len() > smaller.unwrap_or(MOST) {
            wrong.push(format!("{name}: {} modules need each other: {circle:?}", circle.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let modules: BTreeSet<String> = ["", "a", "b", "b::c", "d"].map(String::from).into();
    let graph: Graph = [
        ("", "mod a;\nuse crate::a::Thing;"),
        ("a", "use crate::{\n    b::{Other, c::Deep},\n};"),
        ("b", "use self::c::Deep;\nfn f() { super::d::call() }"),
        ("b::c", "use super::super::a::Thing;"),
        ("d", "pub use crate::b::Other;\n// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}"),
    ]
    .map(|(name, text)| (name.to_owned(), needs(&modules, name, &code(text))))
    .into();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(graph["a"], names(&["b", "b::c"]));
    assert_eq!(graph["b"], names(&["b::c", "d"]));
    assert_eq!(graph["b::c"], names(&["a"]));
    assert_eq!(graph["d"], names(&[]));
    assert_eq!(largest(&graph), names(&["a", "b", "b::c"]));
}
