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
    /// Masks of 64 flags: a number is the double of the same bits.
    U64(&'a [u64]),
}

impl Column<'_> {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::U8(cells) => cells.len(),
            Self::U16(cells) => cells.len(),
            Self::U32(cells) => cells.len(),
            Self::F32(cells) => cells.len(),
            Self::F64(cells) => cells.len(),
            Self::U64(cells) => cells.len(),
        }
    }

    /// Hands each of these rows' number over with its place among them; row -1 has none.
    fn each(&self, rows: &[i64], mut take: impl FnMut(usize, f64)) {
        macro_rules! each {
            ($cells:ident, $number:expr) => {
                for (place, &row) in rows.iter().enumerate() {
                    if let Ok(row) = usize::try_from(row) {
                        take(place, $number($cells[row]));
                    }
                }
            };
        }
        match self {
            Self::U8(cells) => each!(cells, f64::from),
            Self::U16(cells) => each!(cells, f64::from),
            Self::U32(cells) => each!(cells, f64::from),
            Self::F32(cells) => each!(cells, f64::from),
            Self::F64(cells) => each!(cells, f64::from),
            Self::U64(cells) => each!(cells, f64::from_bits),
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
    pub fn rows(&self) -> usize {
        match self {
            Self::U8(cells) => cells.len(),
            Self::U16(cells) => cells.len(),
            Self::U32(cells) => cells.len(),
            Self::F32(cells) => cells.len(),
            Self::F64(cells) => cells.len(),
        }
    }

    /// Writes numbers from this row on. Counters stop at the most that their column holds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a double to a whole number saturates"
    )]
    pub(super) fn fill(&mut self, first: usize, numbers: impl Iterator<Item = f64>) {
        macro_rules! fill {
            ($cells:ident, $number:ty) => {
                $cells[first..]
                    .iter_mut()
                    .zip(numbers)
                    .for_each(|(cell, number)| *cell = number as $number)
            };
        }
        match self {
            Self::U8(cells) => fill!(cells, u8),
            Self::U16(cells) => fill!(cells, u16),
            Self::U32(cells) => fill!(cells, u32),
            Self::F32(cells) => fill!(cells, f32),
            Self::F64(cells) => fill!(cells, f64),
        }
    }
}

/// Seconds since the epoch; 0 is none.
pub type Instant = i64;
/// A duration.
pub type Seconds = i64;

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

/// Instants, and how long something lasts.
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

/// Masks, which no double counts: the bits of the number are theirs.
impl Cell for u64 {
    fn of(number: f64) -> Self {
        number.to_bits()
    }

    fn number(&self) -> f64 {
        f64::from_bits(*self)
    }
}

/// A column's name, its numbers' form, and its field's type. Forms are `u1`, `u2`, `u4`, `f4` and `f8`, as numpy names
/// them, and `u8` of a mask, which is only read. Types are `f64`, `bool`, `u64`, [`Instant`] and [`Seconds`].
pub type Form = (&'static str, &'static str, &'static str);

/// A row of columns. Rows are read and written by blocks, column by column: as many columns as there are would be too many
/// places in memory at once.
pub trait Columns: Sized + Clone {
    /// Each column's form.
    const COLUMNS: &'static [Form];

    /// Reads these rows of the columns, in the order of [`Self::COLUMNS`], into a block; row -1 stays as it is there.
    fn read(columns: &[Column<'_>], rows: &[i64], block: &mut [Self]);

    /// Writes a block from a row on, the columns in the order of [`Self::COLUMNS`].
    fn write(block: &[Self], columns: &mut [ColumnMut<'_>], first: usize);

    /// Gives the row of which nothing is known: no count, no flag, no instant, and NaN for what is measured.
    fn unknown() -> Self;

    /// Gives the row of zeros.
    fn zeros() -> Self;
}

pub(super) fn each<R, T: Cell>(
    column: &Column<'_>,
    rows: &[i64],
    block: &mut [R],
    put: impl Fn(&mut R, T),
) {
    column.each(rows, |place, number| put(&mut block[place], T::of(number)));
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
            const COLUMNS: &'static [$crate::step::columns::Form] =
                &[$((stringify!($field), $form, stringify!($cell))),*];

            fn read(columns: &[$crate::step::columns::Column<'_>], rows: &[i64], block: &mut [Self]) {
                let mut columns = columns.iter();
                $({
                    let column = columns.next().expect("a column a field");
                    $crate::step::columns::each(column, rows, block, |row, cell| row.$field = cell);
                })*
            }

            fn write(block: &[Self], columns: &mut [$crate::step::columns::ColumnMut<'_>], first: usize) {
                let mut columns = columns.iter_mut();
                $({
                    let column = columns.next().expect("a column a field");
                    let numbers = block.iter().map(|row| $crate::step::columns::Cell::number(&row.$field));
                    column.fill(first, numbers);
                })*
            }

            fn unknown() -> Self {
                Self { $($field: $crate::step::columns::nothing($form),)* }
            }

            fn zeros() -> Self {
                Self { $($field: $crate::step::columns::Cell::of(0.0),)* }
            }
        }
    };
}
pub(super) use columns;

#[cfg(test)]
mod tests {
    use super::{Column, Columns};

    columns! {
        /// A mask.
        #[derive(Clone)]
        pub struct Mask {
            /// Its flags.
            flags: u64 as "u8",
        }
    }

    #[test]
    fn every_bit_of_a_mask_arrives() {
        // As doubles these are subnormal, NaN that signals, and NaN that does not.
        let given = [1, 0x7FF0_0000_0000_0001, u64::MAX];
        let mut block = vec![Mask::unknown(); 4];
        Mask::read(&[Column::U64(&given)], &[2, 1, 0, -1], &mut block);
        let found: Vec<u64> = block.iter().map(|row| row.flags).collect();
        assert_eq!(found, [given[2], given[1], given[0], 0]);
    }
}
