//! Words: the actions of a part of a decision, and its reasons, each with the rule that stands behind it.

/// Defines the reasons of a part: `Variant "name" "rule"`.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal $rule:literal,)*) => {
        /// The rule that made the decision what it is: the last one that changed a value, or kept it from changing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $variant,)* }

        impl Reason {
            /// Name of each, and its rule: the keys of the policy that decide on it, or a sentence.
            pub const ALL: &'static [(&'static str, &'static str)] = &[$(($name, $rule)),*];
        }

        const _: () = assert!(Reason::ALL.len() < 256);
    };
}
pub(super) use reasons;
