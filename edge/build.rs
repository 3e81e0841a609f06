//! Compiles the eBPF programs of `bpf/` into OUT_DIR; they are embedded, so that an edge needs no compiler. What they
//! share with user space they include as layout.h, which is made of core's module `layout` before.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use cbindgen::{Builder, Config, RenameRule, Style};

const PROGRAMS: [&str; 4] = ["start", "copy", "listen", "restore"];
const LAYOUT: &str = "../core/src/layout";
/// Its includes: the kernel's types, by which BPF programs have those that cbindgen names.
const TYPES: &str = "#include <linux/bpf.h>
typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s64 int64_t;";

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-changed={LAYOUT}");
    println!("cargo:rerun-if-env-changed=CLANG");
    header();
    for name in PROGRAMS {
        compile(name);
    }
}

/// Writes layout.h, with names in C's manner.
fn header() {
    let mut config = Config {
        language: cbindgen::Language::C,
        style: Style::Tag,
        pragma_once: true,
        no_includes: true,
        after_includes: Some(TYPES.to_owned()),
        ..Config::default()
    };
    config.enumeration.rename_variants = RenameRule::QualifiedScreamingSnakeCase;
    let text = layout();
    let names = types(&text);
    // For a test, which looks at each of them.
    println!("cargo:rustc-env=LAYOUT_TYPES={}", names.join(" "));
    let laid = out("laid.rs");
    fs::write(&laid, members(&text)).unwrap_or_else(|error| panic!("{}: {error}", laid.display()));
    for name in names {
        config.export.rename.insert(name.clone(), snake_case(&name));
        config.export.include.push(name);
    }
    // The kernel's own.
    let (lock, kernel) = ("SpinLock", "struct bpf_spin_lock");
    config.export.exclude.push(lock.to_owned());
    config
        .export
        .rename
        .insert(lock.to_owned(), kernel.to_owned());
    let made = Builder::new()
        .with_config(config)
        .with_src(Path::new(LAYOUT).join("mod.rs"))
        .generate();
    made.unwrap_or_else(|error| panic!("{LAYOUT}: {error}"))
        .write_to_file(out("layout.h"));
}

/// The module's text.
fn layout() -> String {
    let files = fs::read_dir(LAYOUT).unwrap_or_else(|error| panic!("{LAYOUT}: {error}"));
    files
        .map(|file| fs::read_to_string(file.expect(LAYOUT).path()).expect(LAYOUT))
        .collect()
}

/// The names of what stands in the module, in an order that no file system decides: cbindgen leaves out what no function
/// has.
fn types(text: &str) -> Vec<String> {
    let end = |c: char| !c.is_ascii_alphanumeric();
    let named = text.lines().filter_map(|line| {
        let struct_ = line.strip_prefix("pub struct ");
        struct_
            .or(line.strip_prefix("pub enum "))?
            .split(end)
            .next()
    });
    let mut names: Vec<String> = named.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// `laid!(Struct: member, member)` of each struct with named members, for a test whose macro takes them.
fn members(text: &str) -> String {
    let laid = |part: &str| {
        let (name, body) = part.split_once(" {\n")?;
        let lines = body.split("\n}").next()?.lines();
        let named: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix("    pub ")?.split(':').next())
            .collect();
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric());
        is_name.then(|| format!("laid!({name}: {})", named.join(", ")))
    };
    let structs = text.split("\npub struct ").skip(1).filter_map(laid);
    format!("vec![{}]\n", structs.collect::<Vec<_>>().join(",\n"))
}

fn snake_case(name: &str) -> String {
    let parts = name
        .char_indices()
        .map(|(at, c)| match at > 0 && c.is_ascii_uppercase() {
            true => format!("_{}", c.to_ascii_lowercase()),
            false => c.to_ascii_lowercase().to_string(),
        });
    parts.collect()
}

fn compile(name: &str) {
    let source = PathBuf::from("bpf").join(format!("{name}.bpf.c"));
    let object = out(&format!("{name}.bpf.o"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut command = Command::new(&clang);
    // 32-bit instructions. Addition is the only atomic in use: Linux 5.10 has no other.
    command.args([
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-mcpu=v3",
        "-target",
        target(),
    ]);
    // No path of the machine that builds.
    command.arg(format!(
        "-fdebug-prefix-map={}=.",
        variable("CARGO_MANIFEST_DIR")
    ));
    // libbpf's headers come with the crate libbpf-sys.
    command.arg("-I").arg(variable("DEP_BPF_INCLUDE"));
    command.arg("-I").arg(variable("OUT_DIR"));
    // <linux/types.h> wants <asm/types.h>, which Debian keeps per architecture.
    for directory in [
        "x86_64-linux-gnu",
        "aarch64-linux-gnu",
        "riscv64-linux-gnu",
        "s390x-linux-gnu",
    ] {
        if directory.starts_with(&variable("CARGO_CFG_TARGET_ARCH")) {
            command
                .arg("-idirafter")
                .arg(Path::new("/usr/include").join(directory));
        }
    }
    command.arg("-c").arg(&source).arg("-o").arg(&object);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!(
            "{}: {clang} ended with {status}: its messages stand above",
            source.display()
        ),
        Err(error) => panic!("{clang}: {error}: install clang 14 or newer, or name it in CLANG"),
    }
}

fn out(name: &str) -> PathBuf {
    PathBuf::from(variable("OUT_DIR")).join(name)
}

fn target() -> &'static str {
    if variable("CARGO_CFG_TARGET_ENDIAN") == "big" {
        "bpfeb"
    } else {
        "bpfel"
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}
