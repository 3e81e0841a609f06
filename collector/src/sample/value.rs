//! A field's value for readers: JSON and the table.

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// An unsigned number.
    Unsigned(u64),
    /// A signed number or an enum.
    Signed(i64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(&'a str),
    /// An address.
    Bytes(&'a [u8]),
}

/// A field that may be absent.
pub(crate) trait Present {
    /// Its value, unless the kernel did not give it.
    fn present(&self) -> Option<Value<'_>>;
}

macro_rules! present {
    ($($type:ty, |$value:ident| $make:expr;)*) => {$(
        impl Present for $type {
            fn present(&self) -> Option<Value<'_>> {
                let $value = self;
                Some($make)
            }
        }
    )*};
}

present! {
    u32, |v| Value::Unsigned((*v).into());
    u64, |v| Value::Unsigned(*v);
    i32, |v| Value::Signed((*v).into());
    i64, |v| Value::Signed(*v);
    bool, |v| Value::Bool(*v);
    String, |v| Value::Text(v);
    Vec<u8>, |v| Value::Bytes(v);
}

impl<T: Present> Present for Option<T> {
    fn present(&self) -> Option<Value<'_>> {
        self.as_ref().and_then(Present::present)
    }
}
