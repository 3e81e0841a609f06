//! The step, and what a start saves, over numpy's arrays.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use springtide_core::gain::Path;
use springtide_core::step::columns::{Column, ColumnMut, Columns, Form};
use springtide_core::step::congestion::Algorithms;
use springtide_core::step::initcwnd::{Initcwnd, Windows};
use springtide_core::step::recovery::LossRecovery;
use springtide_core::step::start::{self, Rule, Seen, Start, Starts};
use springtide_core::step::{self, Left, Part};

/// Columns of a round, as the controller's laws have them.
#[derive(FromPyObject)]
pub struct Paths<'py> {
    seen: Vec<Bound<'py, PyAny>>,
    at_seen: Bound<'py, PyAny>,
    before: Vec<Bound<'py, PyAny>>,
    at_before: Bound<'py, PyAny>,
    overrides: Vec<Bound<'py, PyAny>>,
    at_override: Bound<'py, PyAny>,
    groups: Bound<'py, PyAny>,
    frozen: Bound<'py, PyAny>,
}

/// An array that is held for a call.
struct Held<T: Element>(PyBuffer<T>);

impl<T: Element> Held<T> {
    fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(array)?;
        if buffer.is_c_contiguous() {
            Ok(Self(buffer))
        } else {
            Err(PyValueError::new_err("an array is not contiguous"))
        }
    }

    fn cells(&self) -> &[T] {
        if self.0.item_count() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, of T, and held. The controller does not write into what it hands over.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.item_count()) }
    }

    fn cells_mut(&mut self) -> PyResult<&mut [T]> {
        if self.0.readonly() {
            return Err(PyValueError::new_err("an array to write into is read-only"));
        }
        if self.0.item_count() == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as above; and the controller makes each array that is written into anew for the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.item_count()) })
    }
}

/// A column of the form that is asked for.
enum Numbers {
    U8(Held<u8>),
    U16(Held<u16>),
    U32(Held<u32>),
    F32(Held<f32>),
    F64(Held<f64>),
    U64(Held<u64>),
}

impl Numbers {
    fn of(array: &Bound<'_, PyAny>, (name, form, _): Form) -> PyResult<Self> {
        let found = match form {
            "u1" => Held::of(array).map(Self::U8),
            "u2" => Held::of(array).map(Self::U16),
            "u4" => Held::of(array).map(Self::U32),
            "f4" => Held::of(array).map(Self::F32),
            "u8" => Held::of(array).map(Self::U64),
            _ => Held::of(array).map(Self::F64),
        };
        found.map_err(|error| {
            PyTypeError::new_err(format!("column {name} is not of {form}: {error}"))
        })
    }

    fn all(arrays: &[Bound<'_, PyAny>], forms: &[Form]) -> PyResult<Vec<Self>> {
        if arrays.len() != forms.len() {
            let (found, wanted) = (arrays.len(), forms.len());
            return Err(PyValueError::new_err(format!(
                "{found} columns where {wanted} are read"
            )));
        }
        arrays
            .iter()
            .zip(forms)
            .map(|(array, &form)| Self::of(array, form))
            .collect()
    }

    fn column(&self) -> Column<'_> {
        match self {
            Self::U8(held) => Column::U8(held.cells()),
            Self::U16(held) => Column::U16(held.cells()),
            Self::U32(held) => Column::U32(held.cells()),
            Self::F32(held) => Column::F32(held.cells()),
            Self::F64(held) => Column::F64(held.cells()),
            Self::U64(held) => Column::U64(held.cells()),
        }
    }

    fn column_mut(&mut self) -> PyResult<ColumnMut<'_>> {
        Ok(match self {
            Self::U8(held) => ColumnMut::U8(held.cells_mut()?),
            Self::U16(held) => ColumnMut::U16(held.cells_mut()?),
            Self::U32(held) => ColumnMut::U32(held.cells_mut()?),
            Self::F32(held) => ColumnMut::F32(held.cells_mut()?),
            Self::F64(held) => ColumnMut::F64(held.cells_mut()?),
            Self::U64(_) => return Err(PyTypeError::new_err("masks are only read")),
        })
    }
}

/// Columns of one table, and the row of it that is each path's.
struct Table {
    columns: Vec<Numbers>,
    rows: Held<i64>,
}

impl Table {
    fn of(
        arrays: &[Bound<'_, PyAny>],
        rows: &Bound<'_, PyAny>,
        forms: &[Form],
        paths: usize,
    ) -> PyResult<Self> {
        let found = Self {
            columns: Numbers::all(arrays, forms)?,
            rows: Held::of(rows)?,
        };
        let length = found
            .columns
            .iter()
            .map(|column| column.column().rows())
            .min()
            .unwrap_or(0);
        let is_within = |&row: &i64| usize::try_from(row).map_or(row == -1, |row| row < length);
        if found.rows.cells().len() != paths || !found.rows.cells().iter().all(is_within) {
            return Err(PyValueError::new_err(
                "a path names a row that is not there",
            ));
        }
        Ok(found)
    }

    fn columns(&self) -> Vec<Column<'_>> {
        self.columns.iter().map(Numbers::column).collect()
    }
}

fn forms<T: Columns, U: Columns>() -> Vec<Form> {
    [T::COLUMNS, U::COLUMNS].concat()
}

fn read<T: serde::de::DeserializeOwned>(policy: &str) -> PyResult<T> {
    serde_json::from_str(policy)
        .map_err(|error| PyValueError::new_err(format!("the policy cannot be read: {error}")))
}

/// Runs an expression with `$part` as the part of a decision that is named.
macro_rules! of_part {
    ($name:expr, $part:ident => $of:expr) => {
        match $name {
            "start" => {
                type $part = Starts;
                Ok($of)
            }
            "initcwnd" => {
                type $part = Windows;
                Ok($of)
            }
            "congestion" => {
                type $part = Algorithms;
                Ok($of)
            }
            "recovery" => {
                type $part = LossRecovery;
                Ok($of)
            }
            name => Err(PyValueError::new_err(format!(
                "no part of a decision is called {name}"
            ))),
        }
    };
}

/// Decides a round, seconds since the epoch, of a part of decisions. `policy` is the policy as JSON. Writes each path's
/// columns of `state` and `decided` into `out`. Raises `ValueError` and `TypeError` for arrays of other lengths and forms.
#[pyfunction]
pub fn decide(
    py: Python<'_>,
    part: &str,
    round: i64,
    policy: &str,
    paths: Paths<'_>,
    out: Vec<Bound<'_, PyAny>>,
) -> PyResult<()> {
    of_part!(part, P => decide_part::<P>(py, round, policy, &paths, &out)?)
}

fn decide_part<P: Part>(
    py: Python<'_>,
    round: i64,
    policy: &str,
    paths: &Paths<'_>,
    out: &[Bound<'_, PyAny>],
) -> PyResult<()> {
    let policy: P::Policy = read(policy)?;
    let (groups, frozen) = (
        Held::<u32>::of(&paths.groups)?,
        Held::<u8>::of(&paths.frozen)?,
    );
    let count = groups.cells().len();
    let table = |arrays, rows, forms: &[Form]| Table::of(arrays, rows, forms, count);
    let seen = table(&paths.seen, &paths.at_seen, P::Seen::COLUMNS)?;
    let states = forms::<P::State, Left>();
    let before = table(&paths.before, &paths.at_before, &states)?;
    let words = P::Override::COLUMNS;
    let overrides = table(&paths.overrides, &paths.at_override, words)?;
    let mut out = Numbers::all(out, &forms::<P::State, P::Decided>())?;
    let mut columns = out
        .iter_mut()
        .map(Numbers::column_mut)
        .collect::<PyResult<Vec<_>>>()?;
    if frozen.cells().len() != count || columns.iter().any(|column| column.rows() != count) {
        return Err(PyValueError::new_err("columns are of different lengths"));
    }
    if groups.cells().iter().any(|&group| group as usize > count) {
        return Err(PyValueError::new_err(
            "a group's number is above the number of paths",
        ));
    }
    let found = step::Paths {
        seen: seen.columns(),
        at_seen: seen.rows.cells(),
        before: before.columns(),
        at_before: before.rows.cells(),
        overrides: overrides.columns(),
        at_override: overrides.rows.cells(),
        groups: groups.cells(),
        frozen: frozen.cells(),
    };
    py.detach(|| P::decide(round, &policy, &found, &mut columns));
    Ok(())
}

/// Arrays of doubles of one length, and one to write into.
struct Doubles {
    read: Vec<Held<f64>>,
    out: Held<f64>,
}

impl Doubles {
    fn of(read: &[Bound<'_, PyAny>], out: &Bound<'_, PyAny>) -> PyResult<Self> {
        let found = Self {
            read: read.iter().map(Held::of).collect::<PyResult<_>>()?,
            out: Held::of(out)?,
        };
        let length = found.out.cells().len();
        if found
            .read
            .iter()
            .any(|column| column.cells().len() != length)
        {
            return Err(PyValueError::new_err("arrays are of different lengths"));
        }
        Ok(found)
    }

    fn fill<const N: usize>(&mut self, of: impl Fn([f64; N]) -> f64) -> PyResult<()> {
        let read = &self.read;
        for (at, cell) in self.out.cells_mut()?.iter_mut().enumerate() {
            *cell = of(std::array::from_fn(|column| read[column].cells()[at]));
        }
        Ok(())
    }
}

/// Microseconds of a transfer, row by row: arrays of `size`, `rtt_us`, `rate`, `window` and `mss`. `what` is `pauses`,
/// `transfer` or `gain`.
#[pyfunction]
pub fn start_us(what: &str, of: [Bound<'_, PyAny>; 5], out: Bound<'_, PyAny>) -> PyResult<()> {
    let time = match what {
        "pauses" => Path::pauses_us,
        "transfer" => Path::transfer_us,
        "gain" => Path::gain_us,
        _ => {
            return Err(PyValueError::new_err(format!(
                "{what} is none of pauses, transfer and gain"
            )));
        }
    };
    Doubles::of(&of, &out)?
        .fill(|[size, rtt_us, rate, window, mss]| time(Path { rtt_us, rate, mss }, size, window))
}

/// Segments that the policy's section `start` (as JSON) gives, row by row: arrays of `share`, `path`, `rtt_us`, `mss` and
/// `receiver_window`; 0 where the share or the round trip is unknown.
#[pyfunction]
pub fn start_window(
    policy: &str,
    of: [Bound<'_, PyAny>; 5],
    out: Bound<'_, PyAny>,
) -> PyResult<()> {
    let law: Start = read(policy)?;
    Doubles::of(&of, &out)?.fill(|[share, path, rtt_us, mss, receiver_window]| {
        let seen = Seen {
            mss,
            receiver_window,
            ..Seen::unknown()
        };
        start::size(share, path, rtt_us, &seen, &law).window
    })
}

/// Says whether edges brake, now and then by chance, where this share of connections loses something.
#[pyfunction]
pub fn brakes(share: f64, brake_share: f64, brake_connections: f64) -> bool {
    start::brakes(share, brake_share, brake_connections)
}

/// Segments, by the policy's section `initcwnd` (as JSON): by how many a window must differ from the one in use
/// (`window`) to be published, and how many one more round that shows `observed` leads to.
#[pyfunction]
pub fn window_changes(
    policy: &str,
    window: f64,
    observed: f64,
    smoothed: f64,
) -> PyResult<(f64, f64)> {
    let law: Initcwnd = read(policy)?;
    Ok((
        law.smallest_change(window),
        law.following(observed, smoothed),
    ))
}

/// Columns that a part of decisions reads and writes, by table, each with what its numbers are, and the type of
/// its field.
#[pyfunction]
pub fn columns(part: &str, table: &str) -> PyResult<Vec<Form>> {
    of_part!(part, P => match table {
        "seen" => <P as Part>::Seen::COLUMNS,
        "state" => <P as Part>::State::COLUMNS,
        "override" => <P as Part>::Override::COLUMNS,
        "decided" => <P as Part>::Decided::COLUMNS,
        _ => return Err(PyValueError::new_err(format!("no table {table}"))),
    }.to_vec())
}

/// Reasons of a part's decisions in the order of their numbers, each with its rule.
#[pyfunction]
pub fn reasons(part: &str) -> PyResult<Vec<(&'static str, &'static str)>> {
    of_part!(part, P => P::REASONS.to_vec())
}

/// Actions of a part's decisions in the order of their numbers.
#[pyfunction]
pub fn actions(part: &str) -> PyResult<Vec<&'static str>> {
    of_part!(part, P => P::ACTIONS.to_vec())
}

/// Rules of the step for starts, each with the reason why it exists.
#[pyfunction]
pub fn rules() -> Vec<(&'static str, &'static str)> {
    Rule::ALL.to_vec()
}
