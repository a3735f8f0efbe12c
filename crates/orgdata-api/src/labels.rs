//! Enums whose values are label values.

/// Defines an enum with a label for each of its values: `ALL`, `as_str` and `parse`.
#[macro_export]
macro_rules! labels {
    ($(#[$attribute:meta])* $name:ident { $($(#[$doc:meta])* $value:ident => $label:literal,)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $value,)+ }

        impl $name {
            /// Every value.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$value),+];

            /// Returns the label value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $label,)+ }
            }

            /// Returns the value with this label.
            pub fn parse(label: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == label)
            }
        }
    };
}
