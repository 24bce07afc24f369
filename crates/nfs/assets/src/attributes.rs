//! The attributes of a host or a service, named as in Rapid7's recog, with their values.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// The longest name or value that is kept, in bytes.
pub(super) const MAX_VALUE: usize = 256;
/// The most attributes of a host or a service.
const MAX_ATTRIBUTES: usize = 32;

/// Attributes such as `service.product` with their values, in the order in which they were set.
///
/// There may be a million of these lists, most of them equal: each is one text of names and values,
/// zero-terminated, which equal lists may share.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Attributes(Arc<str>);

impl Default for Attributes {
    fn default() -> Self {
        Self("".into())
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Attributes {
    /// The value of the attribute `name`.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Sets an attribute, within the limits on lengths and their number.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let mut draft = Draft::from(&*self);
        draft.set(name, value);
        *self = draft.finish();
    }

    /// Adds the attributes of `other` that are missing here.
    pub(super) fn complete(&mut self, other: &Self) {
        let mut draft = Draft::from(&*self);
        for (name, value) in other.iter() {
            if draft.get(name).is_none() {
                draft.set(name, value);
            }
        }
        *self = draft.finish();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut words = self.0.split_terminator('\0');
        std::iter::from_fn(move || Some((words.next()?, words.next()?)))
    }

    /// The approximate memory in bytes, as if the text were not shared.
    pub(super) fn memory(&self) -> usize {
        self.0.len()
    }

    /// Whether it satisfies the limits of this module.
    pub(super) fn is_sound(&self) -> bool {
        let mut words = 0;
        let fit = self.0.split_terminator('\0').all(|word| {
            words += 1;
            word.len() <= MAX_VALUE
        });
        let ended = self.0.is_empty() || self.0.ends_with('\0');
        fit && ended && words % 2 == 0 && words <= 2 * MAX_ATTRIBUTES
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut draft = Draft::default();
        for (name, value) in pairs {
            draft.set(name, value);
        }
        draft.finish()
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Attributes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("attributes")
            }

            fn visit_str<E>(self, text: &str) -> Result<Attributes, E> {
                Ok(Attributes(text.into()))
            }
        }
        input.deserialize_str(Text)
    }
}

/// A list of attributes under construction.
#[derive(Default)]
pub(super) struct Draft(Vec<(String, String)>);

impl From<&Attributes> for Draft {
    fn from(attributes: &Attributes) -> Self {
        Self(attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl Draft {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sets an attribute, within the limits on lengths and their number.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let value = clip(value).replace('\0', " ");
        if let Some((_, old)) = self.0.iter_mut().find(|(known, _)| known == name) {
            *old = value;
        } else if self.0.len() < MAX_ATTRIBUTES {
            self.0.push((clip(name).replace('\0', " "), value));
        }
    }

    /// The attributes, without the temporary ones that only served to build others.
    pub(super) fn finish(self) -> Attributes {
        let kept = self.0.into_iter().filter(|(name, _)| !name.starts_with("_tmp."));
        let text: String =
            kept.flat_map(|(name, value)| [name, "\0".into(), value, "\0".into()]).collect();
        Attributes(text.into())
    }
}

/// The part of a value that is kept: its beginning.
pub(super) fn clip(value: &str) -> &str {
    let mut end = value.len().min(MAX_VALUE);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_there_in_its_order() {
        let mut attributes = Attributes::default();
        for (name, value) in [("b", "1"), ("a", ""), ("_tmp.x", "3"), ("b", "2\0")] {
            attributes.set(name, value);
        }
        assert_eq!(attributes.iter().collect::<Vec<_>>(), [("b", "2 "), ("a", "")]);
        assert!(attributes.is_sound() && Attributes::default().is_sound());
        let bytes = postcard::to_stdvec(&attributes).unwrap();
        assert_eq!(postcard::from_bytes::<Attributes>(&bytes).unwrap(), attributes);
    }

    #[test]
    fn too_much_is_left_out_or_refused() {
        let long = "ü".repeat(200);
        let names: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        let attributes: Attributes = names.iter().map(|n| (n.as_str(), long.as_str())).collect();
        assert_eq!((attributes.iter().count(), attributes.get("0").unwrap().len()), (32, 256));
        assert!(attributes.is_sound());
        for text in ["a", "a\0", "a\0b", &format!("a\0{}\0", "x".repeat(257)), &"\0".repeat(66)] {
            assert!(!Attributes(text.into()).is_sound(), "{text:?}");
        }
    }
}
