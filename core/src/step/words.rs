//! Words: the actions of a part of a decision, and its reasons, each with the rule that stands behind it.

/// Effect of a decision on a part's one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Action {
    None,
    Set,
    Withdraw,
}

impl Action {
    /// Names, in the order of their numbers.
    pub(super) const NAMES: &'static [&'static str] = &["none", "set", "withdraw"];

    /// Tells what became of the value in use; 0 is none.
    pub(super) fn of(before: f64, after: f64) -> Self {
        if after > 0.0 {
            Self::Set
        } else if before > 0.0 {
            Self::Withdraw
        } else {
            Self::None
        }
    }
}

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
