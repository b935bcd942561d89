//! A key that is said once: one line is its row, its field and its reader.
//!
//! [`keys!`] makes a struct of such lines; [`words!`] makes what a key of a few words may be. Both travel as JSON under the
//! names of the file, and what is not there has its default: so another build may know more or fewer keys.

use std::{marker::PhantomData, str::FromStr, time::Duration};

use crate::{
    describe::{Default, Type},
    input::{Section, Value},
    keys::types::SIZE,
    size::Size,
};

/// Makes a struct of keys. Of each: its name in the file, its field and type, how it is read ([`Flag`] and what follows it
/// here), when a change takes effect, what it means. Behind `+` are fields that need more to be read, with what they are until
/// then; they do not travel.
macro_rules! keys {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($key:literal $field:ident: $type:ty = $kind:expr, $effect:ident, $doc:literal;)*
        $(+ $(#[$more_meta:meta])* $more:ident: $more_type:ty = $usual:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(#[doc = concat!("`", $key, "`: ", $doc)] #[serde(rename = $key)] pub $field: $type,)*
            $($(#[$more_meta])* #[serde(skip)] pub $more: $more_type,)*
        }

        impl $name {
            /// Their rows.
            pub(crate) const KEYS: &'static [$crate::describe::Key] = &[$($crate::describe::Key {
                once: true,
                ..$crate::describe::key(
                    $key, $kind.of(), $kind.default(), $crate::describe::Effect::$effect, $doc,
                )
            }),*];

            /// What a section says, with the defaults of what it does not say.
            pub(crate) fn read(section: &$crate::input::Section<'_>) -> Self {
                Self { $($field: $kind.read(section, $key),)* $($more: $usual,)* }
            }
        }

        impl std::default::Default for $name {
            fn default() -> Self {
                Self { $($field: $kind.value(),)* $($more: $usual,)* }
            }
        }
    };
}

/// Makes an enum of words: the default, and each variant with its word in the file.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident = $default:ident $text:literal {
        $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// The word in the file.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl std::default::Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl $crate::keyed::Word for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),*];
            const NAMES: &'static [&'static str] = &[$($word),*];
            const DEFAULT: &'static str = concat!("\"", $text, "\"");
        }
    };
}

/// A number in a range, or as given.
macro_rules! number {
    ($low:literal..=$high:literal, $default:literal) => {
        $crate::keyed::Number { low: $low, high: $high, default: stringify!($default) }
    };
}

/// A number of seconds in a range, or as given.
macro_rules! seconds {
    ($low:literal..=$high:literal, $default:literal) => {
        $crate::keyed::Seconds($crate::keyed::number!($low..=$high, $default))
    };
}

pub(crate) use {keys, number, seconds, words};

/// What is one of a few words.
pub(crate) trait Word: Copy + std::default::Default + 'static {
    /// Each word and what it means.
    const WORDS: &'static [(&'static str, Self)];
    /// The words alone.
    const NAMES: &'static [&'static str];
    /// The word of the default, as in the file.
    const DEFAULT: &'static str;
}

/// `true` or `false`, and which by default.
pub(crate) struct Flag(pub(crate) bool);

impl Flag {
    pub(crate) const fn of(&self) -> Type {
        Type::Bool
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Is(if self.0 { "true" } else { "false" })
    }

    pub(crate) fn value(&self) -> bool {
        self.0
    }

    pub(crate) fn read(&self, section: &Section<'_>, key: &'static str) -> bool {
        section.or(key, self.0)
    }
}

/// The same as the first where another part of the file says what is the default; until then it is that of the first.
pub(crate) struct Inherited<K>(pub(crate) K, pub(crate) &'static str);

macro_rules! inherited {
    ($($kind:ty: $value:ty),*) => {$(
        impl Inherited<$kind> {
            pub(crate) const fn of(&self) -> Type {
                self.0.of()
            }

            pub(crate) const fn default(&self) -> Default {
                Default::Else(self.1)
            }

            pub(crate) fn value(&self) -> $value {
                self.0.value()
            }

            pub(crate) fn read(&self, section: &Section<'_>, key: &'static str) -> $value {
                self.0.read(section, key)
            }
        }
    )*};
}

inherited!(Flag: bool, Seconds: Duration);

/// See [`number!`].
pub(crate) struct Number {
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) default: &'static str,
}

impl Number {
    pub(crate) const fn of(&self) -> Type {
        Type::Number(self.low, self.high)
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Is(self.default)
    }

    pub(crate) fn value<T: FromStr + std::default::Default>(&self) -> T {
        self.default.parse().unwrap_or_default()
    }

    pub(crate) fn read<T>(&self, section: &Section<'_>, key: &'static str) -> T
    where
        T: Value + PartialOrd + std::fmt::Display + FromStr + std::default::Default + TryFrom<u64>,
    {
        let [low, high] = [self.low, self.high].map(|end| T::try_from(end).unwrap_or_default());
        section.number(key, low..=high, self.value())
    }
}

/// One of the words of a type.
pub(crate) struct OneOf<T>(pub(crate) PhantomData<T>);

impl<T: Word> OneOf<T> {
    pub(crate) const fn of(&self) -> Type {
        Type::Word(T::NAMES)
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Is(T::DEFAULT)
    }

    pub(crate) fn value(&self) -> T {
        T::default()
    }

    pub(crate) fn read(&self, section: &Section<'_>, key: &'static str) -> T {
        section.word(key, T::WORDS, T::default())
    }
}

/// Some of the words of a type, or none of them; what holds then is said in words.
pub(crate) struct SomeOf<T>(pub(crate) PhantomData<T>, pub(crate) &'static str);

impl<T: Word + Value> SomeOf<T> {
    pub(crate) const fn of(&self) -> Type {
        Type::List(const { &Type::Word(T::NAMES) })
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Else(self.1)
    }

    pub(crate) fn value(&self) -> Vec<T> {
        Vec::new()
    }

    pub(crate) fn read(&self, section: &Section<'_>, key: &'static str) -> Vec<T> {
        section.list::<T>(key).into_iter().flatten().map(|at| at.value).collect()
    }
}

/// A value of a type of its own, or none; what holds then is said in words.
pub(crate) struct Maybe(pub(crate) Type, pub(crate) &'static str);

impl Maybe {
    pub(crate) const fn of(&self) -> Type {
        self.0
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Else(self.1)
    }

    pub(crate) fn value<T>(&self) -> Option<T> {
        None
    }

    pub(crate) fn read<T: Value>(&self, section: &Section<'_>, key: &'static str) -> Option<T> {
        section.optional(key).map(|at| at.value)
    }
}

/// See [`seconds!`].
pub(crate) struct Seconds(pub(crate) Number);

impl Seconds {
    pub(crate) const fn of(&self) -> Type {
        self.0.of()
    }

    pub(crate) const fn default(&self) -> Default {
        self.0.default()
    }

    pub(crate) fn value(&self) -> Duration {
        Duration::from_secs(self.0.value())
    }

    pub(crate) fn read(&self, section: &Section<'_>, key: &'static str) -> Duration {
        Duration::from_secs(self.0.read::<u32>(section, key).into())
    }
}

/// A number from the first to the second, or none; what holds then is said in words.
pub(crate) struct MaybeNumber(pub(crate) u64, pub(crate) u64, pub(crate) &'static str);

impl MaybeNumber {
    pub(crate) const fn of(&self) -> Type {
        Type::Number(self.0, self.1)
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Else(self.2)
    }

    pub(crate) fn value<T>(&self) -> Option<T> {
        None
    }

    pub(crate) fn read<T>(&self, section: &Section<'_>, key: &'static str) -> Option<T>
    where
        T: Value + PartialOrd + std::fmt::Display + FromStr + std::default::Default + TryFrom<u64>,
    {
        let number = Number { low: self.0, high: self.1, default: "" };
        section.has(key).then(|| number.read(section, key))
    }
}

/// An amount of memory from 1 MiB to 64 GiB, or as given.
pub(crate) struct Most(pub(crate) &'static str);

impl Most {
    pub(crate) const fn of(&self) -> Type {
        SIZE
    }

    pub(crate) const fn default(&self) -> Default {
        Default::Is(self.0)
    }

    pub(crate) fn value(&self) -> Size {
        self.0.trim_matches('"').parse().unwrap_or(Size::MIB)
    }

    pub(crate) fn read(&self, section: &Section<'_>, key: &'static str) -> Size {
        section.number(key, Size::MIB..=Size::gib(64), self.value())
    }
}
