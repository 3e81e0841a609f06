//! The compiled programs have each member where Rust has it: by the types that the compiler describes in them (BTF).

use std::mem::offset_of;

use libbpf_rs::btf::types::{Array, Composite, Enum, Int, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};
use springtide_core::layout::*;
use zerocopy::TryFromBytes;

use super::{RESTORE, START, open};

/// Name, offset and size.
type Member = (String, usize, usize);

/// A struct's name, size and members.
type Laid = (&'static str, usize, Vec<Member>);

/// Layout in Rust, of names that the build script finds; the compiler finds a missing member.
macro_rules! laid {
    ($type:ident: $($member:ident),+) => {{
        let _ = |$type { $($member: _),+ }: $type| {};
        let members = vec![$((
            stringify!($member).to_owned(),
            offset_of!($type, $member),
            size_of_member(|one: &$type| &one.$member),
        )),+];
        (stringify!($type), size_of::<$type>(), members)
    }};
}

fn size_of_member<T, M>(_: fn(&T) -> &M) -> usize {
    size_of::<M>()
}

fn of_rust() -> Vec<Laid> {
    include!(concat!(env!("OUT_DIR"), "/laid.rs"))
}

/// As Rust would call what C does.
fn plain(name: Option<&std::ffi::OsStr>) -> String {
    name.unwrap_or_default()
        .to_string_lossy()
        .replace('_', "")
        .to_lowercase()
}

fn size_of_type(found: BtfType<'_>) -> usize {
    let found = found.skip_mods_and_typedefs();
    if let Ok(array) = Array::try_from(found) {
        return array.capacity() * size_of_type(array.contained_type());
    }
    match (Composite::try_from(found), Int::try_from(found)) {
        (Ok(composite), _) => composite.size(),
        (_, Ok(int)) => usize::from(int.bits) / 8,
        _ => panic!("{:?} is none that core has", found.name()),
    }
}

/// Layout of a struct in the compiled program; None where it does not use it.
fn of_program(btf: &Btf<'_>, name: &str) -> Option<(usize, Vec<Member>)> {
    let found = btf
        .type_by_kind::<Struct<'_>>()
        .find(|one| plain(one.name()) == name.to_lowercase())?;
    let members = found.iter().map(|member| {
        let MemberAttr::Normal { offset } = member.attr else {
            panic!("{name} has bit fields");
        };
        let name = member
            .name
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        (
            name,
            offset as usize / 8,
            size_of_type(btf.type_by_id(member.ty).unwrap()),
        )
    });
    Some((found.size(), members.collect()))
}

#[test]
fn each_member_stands_where_the_programs_have_it() {
    let all = of_rust();
    let start = Btf::from_raw("start", &START.0).unwrap().unwrap();
    let restore = Btf::from_raw("restore", &RESTORE.0).unwrap().unwrap();
    for (name, size, members) in &all {
        if *name == "SpinLock" {
            continue; // The kernel's own.
        }
        assert_eq!(
            of_program(&start, name),
            Some((*size, members.clone())),
            "{name}"
        );
    }
    let (name, size, members) = all.iter().find(|(name, ..)| *name == "Start").unwrap();
    assert_eq!(of_program(&restore, name), Some((*size, members.clone())));
    let mut named: Vec<&str> = all.iter().map(|(name, ..)| *name).collect();
    // An array, and what stands below.
    named.extend(["Address", "Total"]);
    named.sort_unstable();
    let mut defined: Vec<&str> = env!("LAYOUT_TYPES").split(' ').collect();
    defined.sort_unstable();
    assert_eq!(named, defined);
}

#[test]
fn totals_have_the_numbers_of_the_program() {
    let btf = Btf::from_raw("start", &START.0).unwrap().unwrap();
    let total: Enum<'_> = btf
        .type_by_kind::<Enum<'_>>()
        .find(|one| plain(one.name()) == "total")
        .unwrap();
    assert_eq!(total.len(), TOTALS);
    for one in total.iter() {
        let number = u32::try_from(one.value).unwrap();
        let ours = Total::try_read_from_bytes(&number.to_ne_bytes()).unwrap();
        assert_eq!(plain(one.name), format!("Total{ours:?}").to_lowercase());
    }
}

#[test]
fn maps_have_the_room_that_user_space_takes() {
    let object = open(&START.0).unwrap();
    let map = |name: &str| object.maps().find(|map| map.name() == name).unwrap();
    let sizes = |name: &str| {
        (
            map(name).key_size() as usize,
            map(name).value_size() as usize,
        )
    };
    assert_eq!(sizes("settings"), (4, size_of::<Settings>()));
    assert_eq!(sizes("left_alone"), (4, size_of::<LeftAlone>()));
    assert_eq!(sizes("about"), (4, size_of::<About>()));
    assert_eq!(sizes("states"), (size_of::<Prefix>(), size_of::<State>()));
    assert_eq!(sizes("starts"), (4, size_of::<Start>()));
    assert_eq!(map("settings").max_entries(), SLOTS);
    assert_eq!(map("left_alone").max_entries(), SLOTS);
    assert_eq!(map("totals").max_entries() as usize, TOTALS);
}
