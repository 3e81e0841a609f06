//! Rows as columns: a struct whose fields are columns of numbers, by their names.
//!
//! [`columns!`] defines such a struct once. What a column is called, and how many bytes its numbers have in memory and in
//! the store, is read from there by the controller too.

/// The numbers of one column, to read.
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// Flags, and numbers below 256.
    U8(&'a [u8]),
    /// Numbers below 65,536.
    U16(&'a [u16]),
    /// Counts, and seconds since the epoch.
    U32(&'a [u32]),
    /// Half of a double's bytes.
    F32(&'a [f32]),
    /// Doubles.
    F64(&'a [f64]),
}

impl Column<'_> {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(cells) => cells.len(),
            Self::U16(cells) => cells.len(),
            Self::U32(cells) => cells.len(),
            Self::F32(cells) => cells.len(),
            Self::F64(cells) => cells.len(),
        }
    }

    /// Says whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, row: usize) -> f64 {
        match self {
            Self::U8(cells) => f64::from(cells[row]),
            Self::U16(cells) => f64::from(cells[row]),
            Self::U32(cells) => f64::from(cells[row]),
            Self::F32(cells) => f64::from(cells[row]),
            Self::F64(cells) => cells[row],
        }
    }
}

/// The numbers of one column, to write.
#[derive(Debug)]
pub enum ColumnMut<'a> {
    /// As [`Column::U8`].
    U8(&'a mut [u8]),
    /// As [`Column::U16`].
    U16(&'a mut [u16]),
    /// As [`Column::U32`].
    U32(&'a mut [u32]),
    /// As [`Column::F32`].
    F32(&'a mut [f32]),
    /// As [`Column::F64`].
    F64(&'a mut [f64]),
}

impl ColumnMut<'_> {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(cells) => cells.len(),
            Self::U16(cells) => cells.len(),
            Self::U32(cells) => cells.len(),
            Self::F32(cells) => cells.len(),
            Self::F64(cells) => cells.len(),
        }
    }

    /// Says whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters stop at the most that their column holds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a double to a whole number saturates"
    )]
    fn set(&mut self, row: usize, number: f64) {
        match self {
            Self::U8(cells) => cells[row] = number as u8,
            Self::U16(cells) => cells[row] = number as u16,
            Self::U32(cells) => cells[row] = number as u32,
            Self::F32(cells) => cells[row] = number as f32,
            Self::F64(cells) => cells[row] = number,
        }
    }
}

/// A field of a row, made of a column's number.
pub trait Cell: Sized {
    /// Makes it of the number.
    fn of(number: f64) -> Self;
    /// Gives the number.
    fn number(&self) -> f64;
}

impl Cell for f64 {
    fn of(number: f64) -> Self {
        number
    }

    fn number(&self) -> f64 {
        *self
    }
}

/// Instants: seconds since the epoch, 0 is none.
impl Cell for i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a column of instants has four bytes"
    )]
    fn of(number: f64) -> Self {
        number as Self
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch")]
    fn number(&self) -> f64 {
        *self as f64
    }
}

impl Cell for bool {
    fn of(number: f64) -> Self {
        number > 0.0
    }

    fn number(&self) -> f64 {
        f64::from(u8::from(*self))
    }
}

/// A row of columns.
pub trait Columns: Sized {
    /// Name of each column, and what its numbers are: `u1`, `u2`, `u4`, `f4` or `f8`, as numpy names them.
    const COLUMNS: &'static [(&'static str, &'static str)];

    /// Reads a row; the columns in the order of [`Self::COLUMNS`].
    fn read(columns: &[Column<'_>], row: usize) -> Self;

    /// Writes a row; the columns in the order of [`Self::COLUMNS`].
    fn write(&self, columns: &mut [ColumnMut<'_>], row: usize);

    /// Gives the row of which nothing is known: no count, no flag, no instant, and NaN for what is measured.
    fn unknown() -> Self;
}

pub(super) fn get<T: Cell>(column: &Column<'_>, row: usize) -> T {
    T::of(column.get(row))
}

pub(super) fn set<T: Cell>(column: &mut ColumnMut<'_>, row: usize, cell: &T) {
    column.set(row, cell.number());
}

pub(super) fn nothing<T: Cell>(form: &str) -> T {
    T::of(if form.starts_with('f') { f64::NAN } else { 0.0 })
}

/// Defines a struct whose fields are columns: `name: type as "form"`.
macro_rules! columns {
    (
        $(#[$about:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* $field:ident: $cell:ty as $form:literal,)* }
    ) => {
        $(#[$about])*
        pub struct $name { $($(#[$doc])* pub $field: $cell,)* }

        impl $crate::step::columns::Columns for $name {
            const COLUMNS: &'static [(&'static str, &'static str)] = &[$((stringify!($field), $form)),*];

            fn read(columns: &[$crate::step::columns::Column<'_>], row: usize) -> Self {
                let mut columns = columns.iter();
                Self { $($field: $crate::step::columns::get(columns.next().expect("a column a field"), row),)* }
            }

            fn write(&self, columns: &mut [$crate::step::columns::ColumnMut<'_>], row: usize) {
                let mut columns = columns.iter_mut();
                $($crate::step::columns::set(columns.next().expect("a column a field"), row, &self.$field);)*
            }

            fn unknown() -> Self {
                Self { $($field: $crate::step::columns::nothing($form),)* }
            }
        }
    };
}
pub(super) use columns;
