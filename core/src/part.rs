//! Parts of a bundle: one definition of a struct from which it is read, written, bounded and described.
//!
//! [`part!`] takes a field a line: `required`, `optional` or `instant`, its name and type, and the bounds of its number.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use crate::check::Problems;
use crate::prefix::Prefix;

/// Something that a field can hold.
pub(crate) trait Value {
    /// Describes it as JSON Schema does.
    fn schema() -> Json;

    /// Says whether it is left out where a document is written.
    fn is_absent(&self) -> bool {
        false
    }

    /// Gives the number that bounds are for.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Finds numbers out of bounds in what it holds; `at` is its place in the document.
    fn check(&self, _at: &dyn Display, _found: &mut Problems) {}
}

/// A field of a part.
pub(crate) struct Field {
    pub name: &'static str,
    pub about: &'static str,
    pub is_required: bool,
    pub schema: fn() -> Json,
    pub bounds: Option<RangeInclusive<u64>>,
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Value for $number {
            fn schema() -> Json {
                json!({"type": "integer"})
            }

            fn number(&self) -> Option<u64> {
                Some((*self).into())
            }
        }
    )*};
}

numbers!(u16 u32 u64);

/// An instant, seconds since the epoch, which documents have as text.
impl Value for i64 {
    fn schema() -> Json {
        json!({"type": "string", "format": "date-time"})
    }
}

impl Value for bool {
    fn schema() -> Json {
        json!({"type": "boolean"})
    }

    fn is_absent(&self) -> bool {
        !self
    }
}

impl Value for String {
    fn schema() -> Json {
        json!({"type": "string"})
    }
}

impl Value for Prefix {
    fn schema() -> Json {
        json!({"type": "string"})
    }
}

impl<T: Value> Value for Option<T> {
    fn schema() -> Json {
        T::schema()
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }

    fn check(&self, at: &dyn Display, found: &mut Problems) {
        if let Some(value) = self {
            value.check(at, found);
        }
    }
}

impl<T: Value> Value for Vec<T> {
    fn schema() -> Json {
        json!({"type": "array", "items": T::schema()})
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }

    fn check(&self, at: &dyn Display, found: &mut Problems) {
        for (number, value) in self.iter().enumerate() {
            value.check(&format_args!("{at}[{number}]"), found);
        }
    }
}

/// Describes a part of these fields.
pub(crate) fn schema_of(about: &str, fields: &[Field]) -> Json {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = (field.schema)();
        schema["description"] = field.about.trim().into();
        if let Some(bounds) = &field.bounds {
            schema["minimum"] = (*bounds.start()).into();
            schema["maximum"] = (*bounds.end()).into();
        }
        properties.insert(field.name.to_owned(), schema);
    }
    let required: Vec<&str> = fields
        .iter()
        .filter(|one| one.is_required)
        .map(|one| one.name)
        .collect();
    json!({
        "type": "object",
        "description": about.trim(),
        "additionalProperties": false,
        "properties": properties,
        "required": required,
    })
}

/// An optional value: where it is written down, it is no null.
pub(crate) mod given {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    /// Type that an optional field is read as where it is there.
    pub(crate) trait Given<'de>: Sized {
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
    }

    impl<'de, T: Deserialize<'de>> Given<'de> for Option<T> {
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            T::deserialize(from).map(Some)
        }
    }

    impl<'de, T: Deserialize<'de>> Given<'de> for Vec<T> {
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Self::deserialize(from)
        }
    }

    impl<'de> Given<'de> for bool {
        fn read<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Self::deserialize(from)
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Given<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        T::read(from)
    }

    pub(crate) fn serialize<S: Serializer, T: Serialize>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }
}

/// Defines a part: a struct whose fields stand in the order of their names. It is read from objects only: what serde
/// derives would also take a list of their values.
macro_rules! part {
    ($(#[doc = $about:literal])+ $(#[derive($($derive:ident),*)])? $name:ident { $($body:tt)* }) => {
        part!(@ $name [$($about)+] [$($($derive)*)?] [] [] $($body)*);
    };
    (@ $name:ident $about:tt $derive:tt [$($fields:tt)*] [$($list:tt)*]
        $(#[doc = $doc:literal])+ required $field:ident: $type:ty $(, within $bounds:expr)?; $($rest:tt)*) => {
        part!(@ $name $about $derive
            [$($fields)* $(#[doc = $doc])+ pub $field: $type,]
            [$($list)* { $field, [$($doc)+], true, <$type as $crate::part::Value>::schema, [$($bounds)?] }]
            $($rest)*);
    };
    (@ $name:ident $about:tt $derive:tt [$($fields:tt)*] [$($list:tt)*]
        $(#[doc = $doc:literal])+ optional $field:ident: $type:ty $(, within $bounds:expr)?; $($rest:tt)*) => {
        part!(@ $name $about $derive
            [$($fields)*
                $(#[doc = $doc])+
                #[serde(default, with = "crate::part::given", skip_serializing_if = "crate::part::Value::is_absent")]
                pub $field: $type,]
            [$($list)* { $field, [$($doc)+], false, <$type as $crate::part::Value>::schema, [$($bounds)?] }]
            $($rest)*);
    };
    (@ $name:ident $about:tt $derive:tt [$($fields:tt)*] [$($list:tt)*]
        $(#[doc = $doc:literal])+ instant $field:ident; $($rest:tt)*) => {
        part!(@ $name $about $derive
            [$($fields)* $(#[doc = $doc])+ #[serde(with = "crate::instant::text")] pub $field: i64,]
            [$($list)* { $field, [$($doc)+], true, <i64 as $crate::part::Value>::schema, [] }]
            $($rest)*);
    };
    (@ $name:ident [$($about:literal)+] [$($derive:ident)*] [$($fields:tt)*]
        [$({ $field:ident, [$($doc:literal)+], $required:literal, $schema:expr, [$($bounds:expr)?] })*]) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize $(, $derive)*)]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct $name { $($fields)* }

        impl $name {
            pub(crate) const ABOUT: &'static str = concat!($($about),+);

            /// Names of its fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Gives the names of the fields that a document of it has.
            pub fn given(&self) -> impl Iterator<Item = &'static str> {
                let absent = [$($crate::part::Value::is_absent(&self.$field)),*];
                Self::NAMES.iter().zip(absent).filter(|(_, is_absent)| !is_absent).map(|(name, _)| *name)
            }

            pub(crate) fn fields() -> Vec<$crate::part::Field> {
                vec![$($crate::part::Field {
                    name: stringify!($field),
                    about: concat!($($doc),+),
                    is_required: $required,
                    schema: $schema,
                    bounds: part!(@bounds $($bounds)?),
                }),*]
            }
        }

        impl $crate::part::Value for $name {
            fn schema() -> serde_json::Value {
                $crate::part::schema_of(Self::ABOUT, &Self::fields())
            }

            fn check(&self, at: &dyn std::fmt::Display, found: &mut $crate::check::Problems) {
                $(
                    part!(@within self.$field, format_args!("{at}.{}", stringify!($field)), found, $($bounds)?);
                )*
            }
        }

        impl<'de> serde::de::Deserialize<'de> for $name {
            fn deserialize<D: serde::de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Object;

                impl<'de> serde::de::Visitor<'de> for Object {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        // The derived function: `remote = "Self"` puts it beside the trait.
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(map))
                    }
                }

                from.deserialize_map(Object)
            }
        }

        impl serde::ser::Serialize for $name {
            fn serialize<S: serde::ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, to)
            }
        }
    };
    (@bounds) => { None };
    (@bounds $bounds:expr) => { Some($bounds) };
    (@within $value:expr, $at:expr, $found:ident,) => {
        $crate::part::Value::check(&$value, &$at, $found);
    };
    (@within $value:expr, $at:expr, $found:ident, $bounds:expr) => {
        $found.within($at, $crate::part::Value::number(&$value), $bounds);
    };
}
pub(crate) use part;

/// Describes a choice of names: `Enum: "name" ...`.
macro_rules! choices {
    ($($name:ident: $($choice:literal)+;)*) => {$(
        impl $crate::part::Value for $name {
            fn schema() -> serde_json::Value {
                serde_json::json!({"type": "string", "enum": [$($choice),+]})
            }
        }
    )*};
}
pub(crate) use choices;
