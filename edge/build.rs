//! Compiles the eBPF programs of `bpf/` into OUT_DIR; they are embedded, so that an edge needs no compiler.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 2] = ["start", "restore"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for name in PROGRAMS {
        compile(name);
    }
}

fn compile(name: &str) {
    let source = PathBuf::from("bpf").join(format!("{name}.bpf.c"));
    let object = PathBuf::from(variable("OUT_DIR")).join(format!("{name}.bpf.o"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut command = Command::new(&clang);
    // 32-bit instructions. Of the atomics only the addition is used: Linux 5.10 has no other.
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
