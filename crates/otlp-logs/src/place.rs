//! The caller's table: which members of a JSON object are collected, and which of them become attributes.

use std::borrow::Cow;

/// A place in a JSON value. [`places!`](crate::places) makes an enum of them.
pub trait Place: Copy + 'static {
    /// Any place that is not in the table.
    const OTHER: Self;
    /// The whole value.
    const ROOT: Self;
    /// The number of places.
    const COUNT: usize;
    /// The attributes that are the scalar of a place, unchanged.
    const ATTRIBUTES: &'static [(&'static str, Self)];

    /// Returns the place of the member `key`.
    fn below(self, key: &str) -> Self;

    /// Returns a number below [`COUNT`](Self::COUNT).
    fn index(self) -> usize;
}

/// Defines an enum of places: a name, the attribute that its scalar becomes, if any, and the members that lead to it, each
/// with the place above it. The first of several members that is not null counts.
///
/// ```
/// otlp_logs::places! {
///     /// What is known of a request.
///     pub(crate) Field {
///         Route as "http.route": Root b"route",
///         User: Root b"user",
///         UserId as "user.id": Root b"userId" | User b"id",
///     }
/// }
/// ```
#[macro_export]
macro_rules! places {
    ($(#[$doc:meta])* $visibility:vis $name:ident {
        $($place:ident $(as $attribute:literal)?: $($parent:ident $key:literal)|+,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name {
            /// Anything else.
            Other,
            /// The whole value.
            Root,
            $(#[allow(missing_docs, reason = "the table has them")] $place,)+
        }

        impl $crate::Place for $name {
            const OTHER: Self = Self::Other;
            const ROOT: Self = Self::Root;
            const COUNT: usize = [Self::Other, Self::Root, $(Self::$place),+].len();
            const ATTRIBUTES: &'static [(&'static str, Self)] = &[$($(($attribute, Self::$place),)?)+];

            // Patterns of bytes are compared much faster than patterns of strings.
            fn below(self, key: &str) -> Self {
                match (self, key.as_bytes()) {
                    $($((Self::$parent, $key))|+ => Self::$place,)+
                    _ => Self::Other,
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// A scalar value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scalar<'a> {
    /// Missing, null, or not a scalar.
    #[default]
    Absent,
    /// A string, or a number that neither an `i64` nor a double holds.
    Text(Cow<'a, str>),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number.
    Double(f64),
}

/// The scalars at the places of a JSON value.
#[derive(Debug)]
pub struct Found<'a> {
    values: Vec<Scalar<'a>>,
    /// Whether something was cut.
    pub is_cut: bool,
}

// === impl Scalar ===

impl Scalar<'_> {
    /// Returns the value as text; an absent one stays absent.
    pub fn to_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Bool(value) => Some(value.to_string().into()),
            Self::Int(value) => Some(value.to_string().into()),
            Self::Double(value) => Some(value.to_string().into()),
        }
    }
}

impl<'a, T: Into<Cow<'a, str>>> From<Option<T>> for Scalar<'a> {
    fn from(text: Option<T>) -> Self {
        text.map_or(Self::Absent, |text| Self::Text(text.into()))
    }
}

// === impl Found ===

impl<'a> Found<'a> {
    pub(crate) fn none(places: usize) -> Self {
        Self {
            values: vec![Scalar::Absent; places],
            is_cut: false,
        }
    }

    /// Stores the value of a place. The first of several counts.
    pub(crate) fn set<P: Place>(&mut self, place: P, value: Scalar<'a>) {
        let slot = &mut self.values[place.index()];
        if *slot == Scalar::Absent {
            *slot = value;
        }
    }

    /// Returns the value of a place.
    pub fn get<P: Place>(&self, place: P) -> &Scalar<'a> {
        &self.values[place.index()]
    }

    /// Returns the string at a place.
    pub fn text<P: Place>(&self, place: P) -> Option<&str> {
        match self.get(place) {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }
}
