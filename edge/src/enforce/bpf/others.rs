//! Other sockops programs that see the same connections.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::error::{Result, failed};
use super::pins::{self, Places};
use super::put_back::lift_overdue;
use springtide_core::layout::About;

/// As many as anybody attaches to one cgroup (BPF_CGROUP_MAX_PROGS).
const MOST: usize = 64;

/// Ids of the programs that the cgroup or those above it have beside ours, in the order in which they run.
pub(super) fn others(places: &Places, about: &About) -> Result<Vec<u32>> {
    let advice = "name a directory of cgroup2 that exists";
    let wrong = |error| failed("cannot open the cgroup", &places.cgroup, error, advice);
    let cgroup = File::open(&places.cgroup).map_err(wrong)?;
    let mut ids = [0; MOST];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        query_flags: libbpf_sys::BPF_F_QUERY_EFFECTIVE,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = u32::try_from(MOST).unwrap_or(0);
    // SAFETY: `options` and the array that it points to, of as many words as it says, outlive the call.
    let code = unsafe {
        libbpf_sys::bpf_prog_query_opts(
            cgroup.as_raw_fd(),
            libbpf_sys::BPF_CGROUP_SOCK_OPS,
            &raw mut options,
        )
    };
    if code < 0 {
        let error = std::io::Error::from_raw_os_error(-code);
        let what = "cannot ask for the programs of";
        return Err(failed(what, &places.cgroup, error, "ask again"));
    }
    // SAFETY: both fields of the union are the same number, which the kernel has written.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    let ids = ids.into_iter().take(count);
    Ok(ids.filter(|id| !about.programs.contains(id)).collect())
}

/// Tells the program whether there are others, whose callbacks it must not end. Where that cannot be known, there are.
pub(super) fn counted(places: &Places, about: &About) -> u32 {
    others(places, about).map_or(1, |found| u32::try_from(found.len()).unwrap_or(u32::MAX))
}

/// The same, of the program in force; an application does it too. Where there are others, which may have ended callbacks of
/// ours, caps that are overdue are lifted.
///
/// # Errors
/// [`super::Error::Failed`].
pub fn note_others(places: &Places) -> Result<()> {
    let set = places.set();
    let about = pins::about(&set)?;
    let others = counted(places, &about);
    if others != about.others {
        pins::set_about(&set, &About { others, ..about })?;
    }
    if others > 0 && pins::is_of_this_layout(&set) {
        lift_overdue(&set, &places.cgroup)?;
    }
    Ok(())
}
