//! Generates XRL stubs from `.proto` files, at build time.
//!
//! [`Build`] compiles interface files without protoc, lets prost generate the messages, and adds for every service a
//! server trait, a dispatcher and a client. The options that make a service an XRL interface are described at the
//! head of `api/holdfast/options.proto`. Start with [`Build::compile`]; the shape of the code that comes out is in
//! `stubs.rs`. Nothing of this crate is in the product: it runs in build scripts only.

pub mod compat;
mod interface;
mod stubs;

// Tests of what the crate offers, in the executable of its unit tests.
#[cfg(test)]
extern crate self as holdfast_xrl_gen;
#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use prost_reflect::DescriptorPool;

/// What to compile, and where the results go.
pub struct Build {
    root: PathBuf,
    out: PathBuf,
    includes: Vec<PathBuf>,
    external: Vec<(String, String)>,
    shared: Vec<String>,
}

impl Build {
    /// Interfaces below the folder `root`, results into the folder `out` (created if needed).
    pub fn new(root: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            out: out.into(),
            includes: Vec::new(),
            external: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// Looks for imported files below this folder too.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.includes.push(folder.into());
        self
    }

    /// Uses an additional package whose code exists elsewhere: `external("finder.v1", "::holdfast_xrl::finder::v1")`.
    #[must_use]
    pub fn external(mut self, package: &str, path: &str) -> Self {
        self.external.push((package.to_owned(), path.to_owned()));
        self
    }

    /// Makes a field of octets one whose copies share their memory: `shared(".prepare.v1.Part.configuration")`.
    #[must_use]
    pub fn shared(mut self, field: &str) -> Self {
        self.shared.push(field.to_owned());
        self
    }

    /// Compiles every `.proto` file below the root. See [`compile`](Self::compile).
    ///
    /// # Errors
    /// As `compile`; and when the folder cannot be read.
    pub fn compile_all(&self) -> Result<()> {
        let mut files = Vec::new();
        find_files(&self.root, "proto", &mut files)?;
        files.iter().for_each(|file| println!("cargo:rerun-if-changed={}", file.display()));
        files.sort();
        self.compile(&files)
    }

    /// Compiles these files (paths below the root) and writes `mod.rs`, to be included as
    /// `include!(concat!(env!("OUT_DIR"), "/…/mod.rs"))`, with a module per package beside it.
    ///
    /// # Errors
    /// When a file does not compile, an option is missing or contradicts another, or a result cannot be written.
    pub fn compile(&self, files: &[impl AsRef<Path>]) -> Result<()> {
        println!("cargo:rerun-if-changed={}", self.root.display());
        let mut compiler = protox::Compiler::new([&self.root].into_iter().chain(&self.includes))?;
        compiler.include_source_info(true).include_imports(true).open_files(files)?;
        let pool = compiler.descriptor_pool();
        let interfaces = interface::read(&pool).context("options of the interfaces")?;
        fs::create_dir_all(&self.out).with_context(|| self.out.display().to_string())?;

        let mut set = compiler.file_descriptor_set();
        set.file.retain(|file| self.generates(file.package()));
        for name in set.file.iter().map(prost_types::FileDescriptorProto::name) {
            fs::write(
                self.out.join(interface::set_file_name(name)),
                interface::descriptor_set(&pool, name)?,
            )?;
        }
        let packages = sorted_packages(&set);
        let mut config = prost_build::Config::new();
        // Equal messages have equal octets.
        config.btree_map(["."]);
        config.bytes(&self.shared);
        config.out_dir(&self.out).service_generator(Box::new(stubs::Stubs::new(interfaces)));
        for (package, path) in &self.external {
            config.extern_path(format!(".{package}"), path.clone());
        }
        config.compile_fds(set)?;
        fs::write(self.out.join("mod.rs"), module_tree(&packages))?;
        Ok(())
    }

    /// Whether code is to be generated here for a package.
    fn generates(&self, package: &str) -> bool {
        !matches!(package, "holdfast" | "google.protobuf")
            && self.external.iter().all(|(external, _)| external != package)
    }
}

/// All files below a folder whose names end so.
fn find_files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            find_files(&path, extension, found)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(())
}

fn sorted_packages(set: &prost_types::FileDescriptorSet) -> Vec<String> {
    let mut packages: Vec<String> = set.file.iter().map(|file| file.package().to_owned()).collect();
    packages.sort();
    packages.dedup();
    packages
}

/// Nested modules for packages in sorted order: `bgp.v1` becomes `pub mod bgp { pub mod v1 { … } }`.
fn module_tree(packages: &[String]) -> String {
    let mut code = String::new();
    let mut open: Vec<&str> = Vec::new();
    for package in packages {
        let parts: Vec<&str> = package.split('.').collect();
        let common = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        code.push_str(&"}\n".repeat(open.len() - common));
        for part in &parts[common..] {
            code.push_str(&format!("pub mod {part} {{\n"));
        }
        code.push_str(&format!("include!(\"{package}.rs\");\n"));
        open = parts;
    }
    code.push_str(&"}\n".repeat(open.len()));
    code
}

/// Names of all files a file needs, itself last.
fn with_dependencies(pool: &DescriptorPool, name: &str, names: &mut Vec<String>) -> Result<()> {
    let file = pool.get_file_by_name(name).with_context(|| format!("{name} was not compiled"))?;
    for dependency in file.dependencies() {
        if !names.iter().any(|known| known == dependency.name()) {
            with_dependencies(pool, dependency.name(), names)?;
        }
    }
    names.push(name.to_owned());
    Ok(())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn packages_with_a_common_beginning_share_modules() {
        let packages = ["bgp.v1".to_owned(), "bgp.v2".to_owned(), "rib.v1".to_owned()];
        let code = module_tree(&packages).replace('\n', " ");
        assert_eq!(
            code,
            "pub mod bgp { pub mod v1 { include!(\"bgp.v1.rs\"); } pub mod v2 { include!(\"bgp.v2.rs\"); } } \
             pub mod rib { pub mod v1 { include!(\"rib.v1.rs\"); } } "
        );
    }
}
