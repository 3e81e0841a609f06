//! File systems to fill and to make read-only.

use std::path::Path;
use std::process::Command;

/// A file system of its own, which is unmounted at the end.
pub(super) struct Mounted(tempfile::TempDir);

impl Mounted {
    /// In memory, of that size.
    pub(super) fn tmpfs(kibibytes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={kibibytes}k");
        mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], dir.path());
        Self(dir)
    }

    /// With other options from now on.
    pub(super) fn remount(&self, how: &str) {
        mount(&["-o", &format!("remount,{how}")], self.0.path());
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn mount(arguments: &[&str], path: &Path) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test mounts file systems and needs root: sudo make test"
    );
    let status = Command::new("mount")
        .args(arguments)
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success(), "mount {arguments:?}: {status}");
}
